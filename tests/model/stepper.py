"""A consumer whose pump and workers a test steps itself, without a thread."""

from collections.abc import Callable
from queue import Empty
from typing import Any

from sqlqueue import Delivery, Queue
from sqlqueue.consumer.budget import Database, budget_of
from sqlqueue.consumer.dispatcher import Dispatcher
from sqlqueue.consumer.in_flight import InFlight
from sqlqueue.consumer.leases import LeaseTimer
from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.delivery import reader
from sqlqueue.observers import Observers
from sqlqueue.outcome import Rules
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.retry import Fixed, NoRetry
from sqlqueue.strategies.lease import Lease
from sqlqueue.testing import ManualClock, Recorder

#: Seconds.
LEASE = 30.0

#: Extend with every step, or in no test's time.
KEEN, LAZY = 1e-9, 1e9

Handle = Callable[[Any, Delivery], Any]


class Stepper:
    """A consumer on a queue. `handle` is its handler; `keeper` says how eagerly it extends."""

    def __init__(
        self,
        queue: Queue,
        clock: ManualClock,
        handle: Handle,
        *,
        workers: int,
        prefetch: int,
        by_key: bool,
        keeper: float,
    ) -> None:
        broker = queue.broker
        self.hands = InFlight(workers=workers, prefetch=prefetch, by_key=by_key)
        self.recorder = Recorder()
        self.in_work: list[Work] = []
        self.finished: list[Finished] = []
        self.workers = workers
        notices = Observers(queue.name, [self.recorder])
        read = reader(broker.dialect, queue.spec, broker.codec, int)
        strategy = Lease(
            QueueSQL(broker.dialect, queue.spec, False),
            columns=read.columns,
            seconds=LEASE,
            most=self.hands.capacity,
        )
        self.runner = Runner(
            queue=queue.name,
            reader=read,
            rules=Rules(max_attempts=None, retry=Fixed(5), on_decode_error=NoRetry(), parks=False),
            now=clock.now,
            notices=notices,
            call=handle,
        )
        self.pump = Dispatcher(
            queue=queue.name,
            database=Database(strategy, budget_of(broker.pool), clock.now, broker.dialect.classify, LEASE),
            runner=self.runner,
            hands=self.hands,
            pace=PollTimer(1e6),
            keeper=LeaseTimer(keeper),
            notices=notices,
        )

    def step(self) -> bool:
        """One step of the pump, woken so that it never waits; whether there is more to do."""
        self.pump.wake()
        return self.pump.step()

    def take(self) -> Work | None:
        """A free worker takes a row, if one is ready."""
        if len(self.in_work) + len(self.finished) >= self.workers:
            return None
        try:
            work: Work | None = self.hands.ready.get_nowait()
        except Empty:
            return None
        if work is None or work.delivery.lost:
            return None
        self.in_work.append(work)
        return work

    def handle(self, work: Work) -> None:
        """Its handler runs and ends."""
        self.in_work.remove(work)
        self.finished.append(self.runner.run(work))

    def hand_back(self) -> None:
        """The workers tell the pump what became of their rows."""
        while self.finished:
            self.pump.finish(self.finished.pop(0))

    def stop(self) -> None:
        """A graceful stop: what is in work ends, the rest goes back."""
        self.pump.stop()
        self.step()
        for work in list(self.in_work):
            self.handle(work)
        self.hand_back()
        for _ in range(10):
            if not self.step():
                return
        raise AssertionError(f"it did not stop: {self.pump.held} rows in hand")

    def of(self, *kinds: str) -> list[int]:
        return [event.id for event in self.recorder.of(*kinds)]
