"""A pump with its thread and its workers: the pump claims for all of them, and they run handlers only."""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

from sqlqueue.consumer.handlers import Runner
from sqlqueue.consumer.hands import Hands
from sqlqueue.consumer.outage import Outage
from sqlqueue.consumer.pump import Pump
from sqlqueue.consumer.report import Report
from sqlqueue.consumer.turning import OnStop, Workers

log = logging.getLogger("sqlqueue")


class Pumping:
    """Turns by a pump."""

    def __init__(self, pump: Pump, hands: Hands, runner: Runner, *, queue: str, workers: int) -> None:
        self.pump, self._hands, self._runner, self._queue = pump, hands, runner, queue
        self._workers = Workers(queue, workers)
        self._thread: Thread | None = None
        self.wake, self.stop, self.give_up = pump.wake, pump.stop, pump.give_up

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._workers.start(executor, self._work, on_stop)
        self._thread = Thread(target=self._run, args=(on_stop,), name=f"sqlqueue-pump {self._queue}", daemon=True)
        self._thread.start()

    def _run(self, on_stop: OnStop) -> None:
        try:
            self.pump.run()
        except BaseException as error:  # a bug of ours must end the run, not leave it standing still
            log.critical("queue %s: its pump failed", self._queue, exc_info=error)
            self.pump.fatal = error
        finally:
            for _ in range(self._workers.count):
                self._hands.ready.put(None)
            if self.pump.fatal is not None:
                on_stop(self.pump.fatal)

    def _work(self, on_stop: OnStop) -> None:
        """Take a row, run the handler, hand back what became of it, until there is no more."""
        ready, run, finish = self._hands.ready, self._runner.run, self.pump.finish
        while (work := ready.get()) is not None:
            if work.delivery.lost:  # found out before its handler began
                continue
            finished = run(work)
            if finished.stop is not None:
                on_stop(finished.stop)  # first, so that the row that goes back is not claimed again
            finish(finished)
            del work, finished

    def let_go(self) -> None:
        """Nothing: what is in work is held by its lease, and a settlement under way has its connection."""

    def join(self, timeout: float) -> bool:
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def running(self, timeout: float) -> int:
        return self._workers.running(timeout)

    @property
    def report(self) -> Report:
        return self.pump.ledger.report

    @property
    def outage(self) -> Outage:
        return self.pump.outage

    @property
    def on_idle(self) -> Callable[[], None] | None:
        return self.pump.on_idle

    @on_idle.setter
    def on_idle(self, told: Callable[[], None] | None) -> None:
        self.pump.on_idle = told

    @property
    def stopping(self) -> bool:
        return self.pump.stopping

    @property
    def idle(self) -> bool:
        return self.pump.idle

    @property
    def held(self) -> int:
        return self.pump.held
