"""Tables, handlers that a test steers, and waits with a limit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from queue import SimpleQueue
from time import monotonic
from typing import TypeVar

from sqlqueue import Broker, Consumer, Delivery, Queue, column, table
from sqlqueue.observers import Event
from sqlqueue.testing import Recorder
from tests.support.database import Database

T = TypeVar("T")

#: Seconds: a poll that no test lives to see, and the most that any wait takes.
HOUR = 3600.0
LIMIT = 10.0


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    retry_after: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()
    error: str | None = column.error()


@table("mails")
class Mail:
    id: int = column.id(generated=True)
    group: str = column.group()
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


#: What another program writes.
INSERT = "INSERT INTO jobs (payload, attempt) VALUES (?, 0)"
INSERT_MAIL = 'INSERT INTO mails ("group", payload) VALUES (?, ?)'


def insert(database: Database, *numbers: int) -> None:
    """Rows of `jobs` by another program, each in a transaction of its own."""
    for number in numbers:
        database.execute(INSERT, str(number).encode())


def jobs(broker: Broker) -> Queue:
    """The broker's queue on `jobs`, its table made."""
    queue = broker.queue(Job)
    broker.create_tables()
    return queue


def recorded(broker: Broker, *, drain_timeout: float = LIMIT) -> tuple[Consumer, Recorder]:
    """A consumer, and the recorder of what happens in it."""
    recorder = Recorder()
    return Consumer(broker, observers=[recorder], drain_timeout=drain_timeout), recorder


class Inbox:
    """A handler that hands its messages to the test."""

    def __init__(self) -> None:
        self._messages: SimpleQueue[int] = SimpleQueue()

    def handle(self, message: int) -> None:
        self._messages.put(message)

    def next(self, timeout: float = LIMIT) -> int:
        """The next message that was handled; `queue.Empty` after `timeout` seconds."""
        return self._messages.get(timeout=timeout)

    def some(self, count: int) -> list[int]:
        return [self.next() for _ in range(count)]

    @property
    def empty(self) -> bool:
        return self._messages.empty()


class Gate(Inbox):
    """A handler that tells the test when it begins, and ends when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self._passes = threading.Semaphore(0)
        self.deliveries: list[Delivery] = []
        self.ended: SimpleQueue[int] = SimpleQueue()

    def handle(self, message: int, delivery: Delivery) -> None:  # type: ignore[override]
        self.deliveries.append(delivery)
        super().handle(message)
        if not self._passes.acquire(timeout=2 * LIMIT):
            raise AssertionError("the test never opened the gate")
        self.ended.put(message)

    def open(self, count: int = 1000) -> None:
        """Let so many handlers end, those waiting and those to come."""
        self._passes.release(count)


class Run:
    """A consumer's `run_forever` in a thread of its own."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run_forever()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def ended(self, limit: float = LIMIT) -> bool:
        """Whether the run ends within `limit` seconds."""
        self._thread.join(limit)
        return not self._thread.is_alive()


@contextmanager
def running(consumer: Consumer) -> Iterator[Run]:
    """Run the consumer as a service does, and stop it in any case."""
    run = Run(consumer)
    try:
        wait_until(lambda: consumer.health().state != "new")
        wait_until(lambda: consumer.health().state != "starting")
        yield run
    finally:
        consumer.request_stop()
        assert run.ended(3 * LIMIT)


def wait_until(question: Callable[[], T], limit: float = LIMIT) -> T:
    """The first answer that is true, for what nobody tells us of: a look every 10 ms, for `limit` seconds."""
    pause = threading.Event()
    end = monotonic() + limit
    while not (answer := question()):
        if monotonic() >= end:
            raise AssertionError(f"still {answer!r} after {limit} s")
        pause.wait(0.01)
    return answer


def count(recorder: Recorder, *kinds: str) -> int:
    return len(recorder.of(*kinds))


def wait_idle(recorder: Recorder, looks: int = 1, where: Callable[[Event], bool] = lambda _: True) -> None:
    """Wait until the consumer has looked, found nothing and goes to wait."""
    recorder.wait_for("looked", count=looks, where=where)
