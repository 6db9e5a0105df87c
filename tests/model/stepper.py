"""A consumer whose dispatcher and workers a test steps itself, without a thread."""

from collections.abc import Callable
from queue import Empty
from typing import Any

from sqlqueue import Delivery, Queue
from sqlqueue.consumer.budget import Database, budget_of
from sqlqueue.consumer.dispatcher import Dispatcher
from sqlqueue.consumer.in_flight import InFlight, LeaseTimer
from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.consumer.workers import WorkerThreads
from sqlqueue.delivery import reader
from sqlqueue.observers import Observers
from sqlqueue.outcome import Rules
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.retry import Fixed, NoRetry
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.testing import ManualClock, Recorder

#: Seconds.
LEASE = 30.0

#: Extend with every step, or in no test's time.
KEEN, LAZY = 1e-9, 1e9

Handle = Callable[[Any, Delivery], Any]


class Stepper:
    """A consumer on a queue. `handle` is its handler; `extends` says how eagerly it extends leases."""

    def __init__(
        self,
        queue: Queue,
        clock: ManualClock,
        handle: Handle,
        *,
        workers: int,
        prefetch: int,
        by_key: bool,
        extends: float,
    ) -> None:
        broker = queue.broker
        self.in_flight = InFlight(workers=workers, prefetch=prefetch, by_key=by_key)
        self.recorder = Recorder()
        self.in_work: list[Work] = []
        self.finished: list[tuple[Work, list[Finished]]] = []
        self.workers = workers
        read = reader(broker.dialect, queue.spec, broker.codec, int)
        strategy = Lease(
            QueuePlan(
                sql=QueueSQL(broker.dialect, queue.spec, False),
                columns=read.columns,
                lease=LEASE,
                most=self.in_flight.capacity,
            )
        )
        self.runner = Runner(
            queue=queue.name,
            reader=read,
            rules=Rules(max_attempts=None, retry=Fixed(5), on_decode_error=NoRetry(), parks=False),
            now=clock.now,
            observers=Observers(queue.name, [self.recorder]),
            call=handle,
        )
        self.dispatcher = Dispatcher(
            queue=queue.name,
            database=Database(strategy, budget_of(broker.pool), clock.now, broker.dialect.classify, LEASE),
            runner=self.runner,
            in_flight=self.in_flight,
            poll_timer=PollTimer(1e6),
            lease_timer=LeaseTimer(extends),
            workers=WorkerThreads(queue.name, workers),
        )

    def step(self) -> bool:
        """One step of the dispatcher, woken so that it never waits; whether there is more to do."""
        self.dispatcher.wake()
        return self.dispatcher.step()

    def take(self) -> Work | None:
        """A free worker takes a row, if one is ready."""
        if len(self.in_work) + len(self.finished) >= self.workers:
            return None
        try:
            works = self.in_flight.ready.get_nowait()
        except Empty:
            return None
        if works is None or works[0].delivery.lost:
            return None
        (work,) = works
        self.in_work.append(work)
        return work

    def handle(self, work: Work) -> None:
        """Its handler runs and ends."""
        self.in_work.remove(work)
        self.finished.append((work, self.runner.run([work])))

    def hand_back(self) -> None:
        """The workers tell the dispatcher what became of their rows."""
        while self.finished:
            work, finished = self.finished.pop(0)
            self.dispatcher.finish([work], finished)

    def stop(self) -> None:
        """A graceful stop: what is in work ends, the rest goes back."""
        self.dispatcher.stop()
        self.step()
        for work in list(self.in_work):
            self.handle(work)
        self.hand_back()
        for _ in range(10):
            if not self.step():
                return
        raise AssertionError(f"it did not stop: {self.dispatcher.held} rows in flight")

    def of(self, *kinds: str) -> list[int]:
        return [event.id for event in self.recorder.of(*kinds)]
