"""Turns that come while one is under way are done together."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import attrs
import pytest

from sqlqueue.strategies.group_commit import Grouping
from tests.consumer.helpers import LIMIT, wait_until


@attrs.define
class Doer:
    """Does what it is asked in groups; the first group is under way until `go_on` is set."""

    groups: list[Sequence[str]] = attrs.field(factory=list)
    under_way: threading.Event = attrs.field(factory=threading.Event)
    go_on: threading.Event = attrs.field(factory=threading.Event)
    refuse: Callable[[Sequence[str]], bool] = lambda group: False

    def __call__(self, group: Sequence[str]) -> Sequence[str]:
        self.groups.append(tuple(group))
        if not self.under_way.is_set():
            self.under_way.set()
            assert self.go_on.wait(LIMIT)
        if self.refuse(group):
            raise ValueError(f"refused {list(group)}")
        return [one.upper() for one in group]


def _waits(grouping: Grouping[str], count: int) -> bool:
    return len(grouping._waiting) == count


def ask(doer: Doer, *others: str) -> dict[str, "Future[str]"]:
    """Ask for "first", and while that is under way for the others, in their order."""
    grouping: Grouping[str] = Grouping()
    with ThreadPoolExecutor(1 + len(others)) as executor:
        asked = {"first": executor.submit(grouping.do, "first", doer)}
        assert doer.under_way.wait(LIMIT)
        for count, one in enumerate(others, 1):
            asked[one] = executor.submit(grouping.do, one, doer)
            wait_until(partial(_waits, grouping, count))
        doer.go_on.set()
    return asked


def test_those_that_come_while_one_is_under_way_are_done_together_in_their_order() -> None:
    doer = Doer()
    asked = ask(doer, "a", "b", "c")
    assert doer.groups == [("first",), ("a", "b", "c")]
    assert {one: future.result(0) for one, future in asked.items()} == {
        "first": "FIRST", "a": "A", "b": "B", "c": "C",
    }  # fmt: skip


def test_one_that_fails_fails_alone() -> None:
    doer = Doer(refuse=lambda group: "b" in group)
    asked = ask(doer, "a", "b", "c")
    assert doer.groups == [("first",), ("a", "b", "c"), ("a",), ("b",), ("c",)]
    assert [asked[one].result(0) for one in ("first", "a", "c")] == ["FIRST", "A", "C"]
    with pytest.raises(ValueError, match=r"^refused \['b'\]$"):
        asked["b"].result(0)


def test_one_that_leads_and_is_interrupted_leaves_the_others_to_another() -> None:
    interrupted: list[Sequence[str]] = []

    def once(group: Sequence[str]) -> bool:
        if len(group) > 1 and not interrupted:
            interrupted.append(group)
            raise KeyboardInterrupt
        return False

    doer = Doer(refuse=once)
    asked = ask(doer, "a", "b", "c")
    assert doer.groups == [("first",), ("a", "b", "c"), ("b", "c")]
    assert isinstance(asked["a"].exception(0), KeyboardInterrupt)
    assert [asked[one].result(0) for one in ("b", "c")] == ["B", "C"]
