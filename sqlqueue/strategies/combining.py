"""Turns of several threads as one: those that come while one is under way wait for its end, and go into the next.

The first of those that wait leads: it does the work of all, and the others wake up with what came of theirs. So a busy
queue has fewer transactions, and fewer threads that contend for one writer. (The technique is known as flat combining:
Hendler, Incze, Shavit and Tzafrir, SPAA 2010.)
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")


@attrs.define(eq=False)
class Asked(Generic[T]):
    """What one thread asks for, and what came of it.

    `alone`: it is not to be done with others again, for that failed.
    """

    what: T
    result: Any = None
    done: bool = False
    alone: bool = False
    _called: Lock = attrs.field(factory=Lock)

    def __attrs_post_init__(self) -> None:
        self._called.acquire()

    def wait(self) -> None:
        """Until it is done, or this thread is to lead."""
        self._called.acquire()

    def call(self) -> None:
        self._called.release()


class Combiner(Generic[T]):
    """For any thread."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._led = False
        self._waiting: list[Asked[T]] = []

    def do(self, what: T, carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> Any:
        """The result for `what`, from this thread's `carry_out` or another's: it does all that it is given and returns
        a result for each, or raises and has done none. Raises what it raises for this one alone.
        """
        asked = Asked(what)
        with self._changing:  # decided: who leads
            leads, self._led = not self._led, True
            if not leads:
                self._waiting.append(asked)
        if not leads:
            asked.wait()
        if not asked.done:
            self._lead(asked, carry_out)
        return asked.result

    def _lead(self, asked: Asked[T], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        with self._changing:  # decided: whose turns are one
            others = [] if asked.alone else [one for one in self._waiting if not one.alone]
            self._waiting = [one for one in self._waiting if one.alone] if others else self._waiting
        try:
            if others:
                self._together([asked, *others], carry_out)
            if not asked.done:
                (asked.result,) = carry_out([asked.what])
                asked.done = True
        finally:
            self._hand_on(others)

    def _together(self, asked: Sequence[Asked[T]], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        """Where it fails nobody knows whose fault it was, so each is done by itself."""
        try:
            results = carry_out([one.what for one in asked])
        except Exception:  # noqa: BLE001 - raised again for the one whose fault it is
            for one in asked:
                one.alone = True
            return
        for one, result in zip(asked, results, strict=True):
            one.result, one.done = result, True

    def _hand_on(self, others: Sequence[Asked[T]]) -> None:
        with self._changing:  # decided: who leads next
            self._waiting[:0] = [one for one in others if not one.done]
            following = self._waiting.pop(0) if self._waiting else None
            self._led = following is not None
        for one in others:
            if one.done:
                one.call()
        if following is not None:
            following.call()
