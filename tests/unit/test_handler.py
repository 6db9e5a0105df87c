"""Handlers are checked where they are written: how they are called, and what they take."""

import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from sqlqueue import Delivery
from tests.unit.declared import BY_HAND, Invoice, Job, Plain, made, one, refusal


def two(message: Invoice, delivery: Delivery) -> None: ...
def other_names(invoice: Invoice, what: Any) -> None: ...
def optional_delivery(message: Invoice, delivery: Delivery | None = None) -> None: ...
def told_by_annotation(message: Invoice, d: Delivery = None) -> None: ...  # type: ignore[assignment]
def defaults(message: Invoice, tries: int = 3, name: str = "") -> None: ...
def optional_keyword(message: Invoice, *, name: str = "") -> None: ...
def stars(*message: Invoice) -> None: ...
def as_text(message: "Invoice") -> None: ...
def bare(message, delivery): ...  # type: ignore[no-untyped-def]
def with_service(service: str, message: Invoice, delivery: Delivery) -> None: ...
def three(message: Invoice, delivery: Delivery, extra: int) -> None: ...
def none() -> None: ...
def delivery_alone(delivery: Delivery) -> None: ...
def delivery_first(delivery: Delivery, message: Invoice) -> None: ...
def keyword(message: Invoice, *, name: str) -> None: ...
def keywords(**message: Invoice) -> None: ...
async def coroutine(message: Invoice) -> None: ...
async def stream(message: Invoice) -> AsyncIterator[int]:
    yield 1


def generator(message: Invoice) -> Iterator[int]:
    yield 1


def unknown(message: "Missing") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def broken(message: "Invoice[") -> None: ...  # type: ignore[valid-type]  # noqa: F722


class Service:
    def __call__(self, message: Invoice, delivery: Delivery) -> None: ...

    def method(self, message: Invoice) -> None: ...

    @classmethod
    def of_class(cls, message: Invoice, delivery: Delivery) -> None: ...

    @staticmethod
    def static(message: Invoice) -> None: ...


class AsyncService:
    async def __call__(self, message: Invoice) -> None: ...


@functools.wraps(one)
def wrapped(*args: Any) -> None: ...


@functools.lru_cache
def cached(message: Invoice) -> None: ...


# -- signatures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "takes_delivery", "kind"),
    [
        (one, False, Invoice),
        (two, True, Invoice),
        (other_names, True, Invoice),
        (optional_delivery, True, Invoice),
        (told_by_annotation, True, Invoice),
        (defaults, False, Invoice),
        (optional_keyword, False, Invoice),
        (stars, False, Any),
        (as_text, False, Invoice),
        (bare, True, Any),
        (lambda message: None, False, Any),
        (Service(), True, Invoice),
        (Service().method, False, Invoice),
        (Service.of_class, True, Invoice),
        (Service.static, False, Invoice),
        (functools.partial(with_service, "mail"), True, Invoice),
        (functools.partial(keyword, name="x"), False, Invoice),
        (functools.partial(functools.partial(Service(), delivery=Delivery)), False, Invoice),  # type: ignore[arg-type]
        (wrapped, False, Invoice),
        (cached, False, Invoice),
        (len, False, Any),
        ([].append, False, Any),
    ],
)
def test_whatever_can_be_called_with_a_message_is_a_handler(function: Any, takes_delivery: bool, kind: Any) -> None:
    handler = made(function)
    assert (handler.function, handler.takes_delivery, handler.kind) == (function, takes_delivery, kind)


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (three, "(message: "),
        (none, "() -> None"),
        (keyword, "(message: "),
        (keywords, "(**message: "),
        (delivery_alone, "(delivery: "),
        (delivery_first, "(delivery: "),
        (functools.partial(one, Invoice(1)), "() -> None"),
    ],
)
def test_a_signature_that_cannot_be_served_is_refused_with_the_two_that_can(function: Any, shown: str) -> None:
    name = getattr(function, "__qualname__", repr(function))
    said = refusal(made, function)
    assert said.startswith(f"table 'jobs', handler {name}: takes {shown}")
    assert said.endswith("; a handler is called as f(message) or f(message, delivery)")


@pytest.mark.parametrize(
    "function", [coroutine, stream, generator, AsyncService(), functools.partial(coroutine), AsyncService().__call__]
)
def test_coroutines_and_generators_are_refused_for_handlers_run_on_threads(function: Any) -> None:
    assert refusal(made, function).endswith(
        ": a coroutine or generator; handlers run on threads: give a plain function"
    )


@pytest.mark.parametrize("function", [3, "render", object()])
def test_what_cannot_be_called_is_refused(function: Any) -> None:
    assert refusal(made, function) == f"table 'jobs', handler {function!r}: {function!r} cannot be called"


@pytest.mark.parametrize("function", [int, min, dict.update])
def test_a_signature_that_python_does_not_tell_is_refused_with_the_mend(function: Any) -> None:
    said = refusal(made, function)
    assert said.startswith(f"table 'jobs', handler {function.__qualname__}: its signature cannot be read (")
    assert said.endswith("; wrap it in a function")


def test_an_annotation_that_names_nothing_known_is_refused_by_that_name() -> None:
    assert refusal(made, unknown) == (
        "table 'jobs', handler unknown: an annotation names 'Missing', which is not known in its module; import "
        "it there"
    )


def test_an_annotation_that_is_no_type_is_refused() -> None:
    assert refusal(made, broken).startswith("table 'jobs', handler broken: its annotations cannot be read (")


# -- the message and the table ----------------------------------------------------------------------------------


def test_a_message_on_a_table_without_a_payload_is_refused() -> None:
    """SUITE 176"""
    assert refusal(made, one, Plain) == (
        "table 'plain', handler one: takes Invoice, but the table has no payload column to decode: the handler gets "
        "the row (Plain); annotate that, or mark a column with column.payload()"
    )
    assert "the handler gets the row (a mapping)" in refusal(made, one, BY_HAND)


def test_a_row_of_a_table_with_a_payload_is_refused() -> None:
    """SUITE 176"""

    def take(row: Job) -> None: ...

    assert refusal(made, take) == (
        "table 'jobs', handler test_a_row_of_a_table_with_a_payload_is_refused.<locals>.take: takes the row Job, but "
        "the table has a payload, which is what a handler takes; annotate the message's type, or leave the payload "
        "unmarked"
    )


@pytest.mark.parametrize("kind", [Plain, Any, object, None])
def test_a_row_is_taken_as_itself_or_as_anything(kind: Any) -> None:
    def take(row): ...  # type: ignore[no-untyped-def]

    if kind is not None:
        take.__annotations__["row"] = kind
    assert made(take, Plain).kind is (Any if kind is None else kind)


@pytest.mark.parametrize("kind", [dict, dict[str, Any], Mapping, Mapping[str, Any]])
def test_a_row_of_a_description_by_hand_is_taken_as_a_mapping(kind: Any) -> None:
    def take(row): ...  # type: ignore[no-untyped-def]

    take.__annotations__["row"] = kind
    assert made(take, BY_HAND).kind == kind
