"""A pump whose workers take batches."""

from sqlqueue.consumer.batch_hands import BatchHands, FinishedBatch
from sqlqueue.consumer.batch_runner import BatchRunner
from sqlqueue.consumer.pump import Pump
from sqlqueue.consumer.pumping import Pumping
from sqlqueue.consumer.turning import OnStop


class BatchPumping(Pumping):
    """Turns by a pump, for a handler of batches."""

    def __init__(self, pump: Pump, hands: BatchHands, runner: BatchRunner, *, queue: str, workers: int) -> None:
        super().__init__(pump, hands, runner, queue=queue, workers=workers)
        self._run_batch = runner.run_batch

    def _work(self, on_stop: OnStop) -> None:
        """Take a batch, run the handler, hand back what became of its rows, until there is no more."""
        ready, run, finish = self._hands.ready, self._run_batch, self.pump.finish_batch
        while (works := ready.get()) is not None:
            finished = run([work for work in works if not work.delivery.lost])
            for stop in [one.stop for one in finished if one.stop is not None]:
                on_stop(stop)  # first, so that the rows that go back are not claimed again
            finish(FinishedBatch(len(works), finished))
            del works, finished
