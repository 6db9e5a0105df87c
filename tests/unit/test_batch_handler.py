"""Handlers of batches are checked where they are written: they take a list of messages, and of deliveries."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from sqlqueue import Delivery
from tests.unit.declared import BY_HAND, Invoice, Job, Plain, made, one, refusal


def many(messages: list[Invoice]) -> None: ...
def with_deliveries(messages: list[Invoice], deliveries: list[Delivery]) -> None: ...
def by_name(messages: list[Invoice], deliveries: Any = None) -> None: ...
def by_annotation(messages: list[Invoice], told: Sequence[Delivery] = ()) -> None: ...
def defaults(messages: list[Invoice], tries: int = 3) -> None: ...
def sequence(messages: Sequence[Invoice]) -> None: ...
def iterable(messages: Iterable[Invoice]) -> None: ...
def bare_list(messages: list) -> None: ...  # type: ignore[type-arg]
def lists(messages: list[list[int]]) -> None: ...
def bare(messages, deliveries): ...  # type: ignore[no-untyped-def]
def rows(messages: list[Plain]) -> None: ...
def mappings(messages: list[dict[str, Any]]) -> None: ...
def three(messages: list[Invoice], deliveries: list[Delivery], extra: int) -> None: ...
def tuples(messages: tuple[Invoice, ...]) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes_deliveries", "kind"),
    [
        (many, False, Invoice),
        (with_deliveries, True, Invoice),
        (by_name, True, Invoice),
        (by_annotation, True, Invoice),
        (defaults, False, Invoice),
        (sequence, False, Invoice),
        (iterable, False, Invoice),
        (bare_list, False, Any),
        (lists, False, list[int]),
        (bare, True, Any),
        (lambda messages: None, False, Any),
        ([].append, False, Any),
    ],
)
def test_the_type_of_a_message_is_that_of_the_lists_elements(function: Any, takes_deliveries: bool, kind: Any) -> None:
    handler = made(function, batch=10)
    assert (handler.function, handler.takes_delivery, handler.kind) == (function, takes_deliveries, kind)
    assert handler.batch == 10


@pytest.mark.parametrize(("function", "declared", "kind"), [(rows, Plain, Plain), (mappings, BY_HAND, dict[str, Any])])
def test_without_a_payload_a_batch_is_a_list_of_rows(function: Any, declared: Any, kind: Any) -> None:
    assert made(function, declared, batch=1).kind == kind


@pytest.mark.parametrize(
    ("function", "declared", "said"),
    [
        (one, Job, "takes Invoice, and a batch is a list; annotate list[Invoice], or leave batch out"),
        (tuples, Job, "takes tuple, and a batch is a list; annotate list["),
        (three, Job, "a handler is called as f(messages) or f(messages, deliveries)"),
        (many, Plain, "takes Invoice, but the table has no payload column to decode"),
    ],
)
def test_what_takes_no_list_of_messages_is_refused(function: Any, declared: Any, said: str) -> None:
    assert said in refusal(made, function, declared, batch=2)


@pytest.mark.parametrize("batch", [0, -1, True, 1.5, "4"])
def test_a_batch_is_a_whole_number_from_one_up(batch: Any) -> None:
    said = f"table 'jobs', handler many: batch is {batch!r}; give a whole number from 1 up"
    assert refusal(made, many, batch=batch) == said


def test_a_batch_is_refused_beside_a_transaction() -> None:
    assert refusal(made, many, batch=4, transactional=True) == (
        "batch=4 beside transactional=True: a transaction commits one row with what its handler wrote; leave out one "
        "of the two"
    )
