"""What a handler returns, where that is no outcome: nothing that it only promised to do is acknowledged."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.relay import MemoryPublisher
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import Sent, arrive, message, processed, tracked
from sqlqueue.testing.drain import drain


async def coroutine() -> None:
    raise AssertionError("nobody awaits this")


async def stream() -> AsyncIterator[int]:
    yield 1


def generator() -> Iterator[int]:
    yield 1


class NeedsArguments(Exception):  # noqa: N818 - a handler's own
    def __init__(self, number: int) -> None: ...


#: What makes the answer, the type of the failure, and what that says.
NOT_DONE = [
    (coroutine, "TypeError: the handler returned <coroutine object coroutine at", ", which nobody awaits"),
    (stream, "TypeError: the handler returned <async_generator object stream at", ", which nobody reads"),
    (generator, "TypeError: the handler returned <generator object generator at", ", which nobody reads"),
    (lambda: [Retry()], "TypeError: the handler returned [Retry(after=None)]", "has the outcome Retry(after=None) "),
    (lambda: (1, [Drop]), "TypeError: the handler returned (1, [<class", "return or raise that by itself"),
    (lambda: [None, coroutine()], "TypeError: the handler returned [None, <coroutine", ", which nobody awaits"),
    (lambda: NeedsArguments, "TypeError: ", "missing 1 required positional argument: 'number'"),
]
BY_WHAT = ["coroutine", "async generator", "generator", "list", "class in a tuple", "coroutine in a list", "class"]


class ReturnedContract(Contract):
    """Returning what was not done is a failure, by the retry policy."""

    @pytest.mark.parametrize(("make", "begins", "said"), NOT_DONE, ids=BY_WHAT)
    def test_what_was_not_done_is_a_failure_of_its_row(
        self, database: Database, broker: Broker, strategy: str, make: Callable[[], Any], begins: str, said: str
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(retry=None)(lambda message: make())
        queue.enqueue("x")
        drain(broker)
        ((error, done),) = shown(database, queue, "error", "done_at")
        assert (error.startswith(begins), said in error, done) == (True, True, None), error

    @pytest.mark.parametrize(("make", "begins", "said"), NOT_DONE, ids=BY_WHAT)
    def test_in_a_batch_it_is_a_failure_of_that_row_alone(
        self, database: Database, broker: Broker, strategy: str, make: Callable[[], Any], begins: str, said: str
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(retry=None, batch=3)(lambda messages: [None, make(), "something else"])
        queue.enqueue_many(range(3))
        drain(broker)
        found = shown(database, queue, "error", "done_at")
        assert [done is not None for _, done in found] == [True, False, True]
        ((error, _),) = [row for row in found if row[0] is not None]
        assert (error.startswith(begins), said in error) == (True, True), error

    def test_a_handler_of_batches_that_is_not_awaited_has_failed_on_all_rows(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(retry=None, batch=2)(lambda messages: coroutine())
        queue.enqueue_many(range(2))
        drain(broker)
        errors = [error for (error,) in shown(database, queue, "error")]
        assert [text[:49] for text in errors] == ["TypeError: the handler returned <coroutine object"] * 2

    def test_a_decorator_around_a_coroutine_acknowledges_nothing(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)

        async def handle(message: str) -> None:
            raise AssertionError("nobody awaits this")

        @queue.handler(retry=60)
        @functools.wraps(handle)
        def decorated(*args: Any) -> Any:
            return handle(*args)

        queue.enqueue("x")
        drain(broker)
        assert shown(database, queue, "done_at", "error", "attempt") == [(None, None, 1)]

    def test_a_decorator_that_runs_its_coroutine_makes_a_handler_of_it(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        handled: list[str] = []

        async def handle(message: str) -> None:
            handled.append(message)

        @queue.handler
        @functools.wraps(handle)
        def decorated(*args: Any) -> Any:
            return asyncio.run(handle(*args))

        queue.enqueue("x")
        assert (drain(broker).settled, handled) == (1, ["x"])

    @pytest.mark.parametrize("batch", [None, 3], ids=["single", "batch"])
    def test_the_class_of_an_outcome_stands_for_one_as_in_raise(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, batch: int | None
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)
        outcomes: dict[int, Any] = {0: Drop, 1: DeadLetter, 2: KeyError, 3: Retry}

        def one(message: int) -> Any:
            return outcomes.pop(message, None)

        queue.handler(batch=batch, retry=None)(one if batch is None else lambda all: [one(number) for number in all])
        queue.enqueue_many(range(4))
        drain(broker)
        now = clock.now()
        assert shown(database, queue, "done_at", "error", "attempt") == [
            (now, None, 1),
            (None, "dead-lettered by its handler", 1),
            (None, "KeyError", 1),
            (None, None, 1),
        ]

    @pytest.mark.parametrize("make", [coroutine, generator, lambda: [b"fine", coroutine()], lambda: [b"fine", Retry]])
    @pytest.mark.parametrize("batch", [None, 1], ids=["single", "batch"])
    def test_it_is_no_reply(
        self, database: Database, broker: Broker, make: Callable[[], Any], batch: int | None
    ) -> None:
        bus = MemoryPublisher()
        queue = created(broker, KeptJob)
        queue.handler(reply_to=bus, retry=None, batch=batch)(lambda _: make() if batch is None else [make()])
        queue.enqueue("x")
        drain(broker)
        ((error, done),) = shown(database, queue, "error", "done_at")
        assert (error.startswith("TypeError: the handler returned "), done, bus.calls) == (True, None, [])

    @pytest.mark.parametrize("batch", [None, 1], ids=["single", "batch"])
    def test_a_tracked_message_of_which_that_was_returned_is_not_marked_as_processed(
        self, database: Database, broker: Broker, batch: int | None
    ) -> None:
        sent, tracking = Sent(), tracked(broker)
        queue = created(broker, KeptJob)
        tracking.publisher(sent).publish([message("x")])
        arrive(queue, *sent.messages)
        handler = tracking.consumer(lambda _: coroutine() if batch is None else [coroutine()])
        queue.handler(retry=None, batch=batch)(handler)
        drain(broker)
        ((error, done),) = shown(database, queue, "error", "done_at")
        assert (error.startswith("TypeError: the handler returned "), done, processed(database)) == (True, None, [])
