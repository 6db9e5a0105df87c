"""A model of what is in flight where a handler takes batches: what is in them, and how much more may be claimed."""

from datetime import datetime, timedelta
from queue import Empty

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqlqueue import Delivery
from sqlqueue.clock import UTC
from sqlqueue.consumer.in_flight import InFlight
from sqlqueue.consumer.run_handler import RELEASED, Finished, Work
from sqlqueue.outcome import ACKNOWLEDGED, Move, Settlement, Verdict
from sqlqueue.strategies.claim import Claim

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
RETRIED = Verdict(Settlement(Move.RETRY, due=LATER), "retried")


class BatchesInFlightModel(RuleBasedStateMachine):
    """`out`: the batches that workers have; `held`: all rows, `waiting`: by key those behind the leading one."""

    @initialize(workers=st.integers(1, 3), prefetch=st.integers(0, 5), batch=st.integers(1, 4), by_key=st.booleans())
    def start(self, workers: int, prefetch: int, batch: int, by_key: bool) -> None:
        self.in_flight = InFlight(workers=workers, prefetch=prefetch, by_key=by_key, batch=batch)
        self.batch, self.by_key, self.workers = batch, by_key, workers
        assert self.in_flight.capacity >= workers * batch + prefetch
        assert self.in_flight.capacity % batch == 0
        self.ids = 0
        self.out: list[list[Work]] = []
        self.waiting: dict[object, list[Work]] = {}
        self.ready: list[Work] = []

    @property
    def busy(self) -> set[object]:
        rows = [*self.ready, *(work for batch in self.out for work in batch)]
        return {work.key for work in rows if self.by_key and work.key is not None}

    @precondition(lambda self: self.in_flight.room > 0)
    @rule(data=st.data())
    def rows_are_claimed(self, data: st.DataObject) -> None:
        for _ in range(data.draw(st.integers(1, self.in_flight.room))):
            self.ids += 1
            claim = Claim(id=self.ids, token=NOW, expires=NOW, attempt=1, row=())
            work = Work(Delivery("jobs", claim), data.draw(st.sampled_from([None, "a", "b"])))
            if not self.in_flight.claimed([work]):
                assert self.goes_back() == [work]
                continue
            if work.key in self.busy:
                self.waiting.setdefault(work.key, []).append(work)
            else:
                self.ready.append(work)
        self.in_flight.hand_out()

    @precondition(lambda self: len(self.out) < self.workers)
    @rule()
    def a_worker_asks_for_a_batch(self) -> None:
        try:
            works = self.in_flight.ready.get_nowait()
        except Empty:
            assert self.ready == []
            return
        assert works is not None
        assert works == self.ready[: len(works)]
        del self.ready[: len(works)]
        assert 1 <= len(works) <= self.batch
        keys = [work.key for work in works if self.by_key and work.key is not None]
        assert len(keys) == len(set(keys))
        self.out.append(list(works))

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def a_batch_comes_back_and_its_rows_leave(self, data: st.DataObject) -> None:
        works = self.out.pop(data.draw(st.integers(0, len(self.out) - 1)))
        finished = [Finished(work, ACKNOWLEDGED) for work in works]
        assert self.in_flight.came_back([(works, finished)]) == []
        assert self.in_flight.unsettled == finished
        self.in_flight.unsettled = []
        for work in works:
            behind = self.waiting.pop(work.key, []) if self.by_key and work.key is not None else []
            how = data.draw(st.sampled_from(["settled", "retried", "dropped"]))
            if how == "settled":
                assert self.in_flight.settled([Finished(work, ACKNOWLEDGED)]) == []
                self.ready += behind[:1]
                if behind[1:]:
                    self.waiting[work.key] = behind[1:]
                continue
            if how == "retried":
                assert self.in_flight.settled([Finished(work, RETRIED)]) == [LATER]
            else:
                self.in_flight.drop(work)
            assert self.goes_back() == behind
        self.in_flight.hand_out()

    @rule()
    def the_queue_stops(self) -> None:
        waiting = [work for line in self.waiting.values() for work in line]
        self.in_flight.put_back_unstarted()
        back = self.goes_back()
        assert sorted(map(id, back)) == sorted(map(id, [*waiting, *self.ready]))
        self.waiting.clear()
        self.ready.clear()

    def goes_back(self) -> list[Work]:
        """The rows that go back, settled by the next turn; they start nobody."""
        released, self.in_flight.unsettled = self.in_flight.unsettled, []
        assert all(one.verdict is RELEASED for one in released)
        assert self.in_flight.settled(released) == []
        assert self.in_flight.unsettled == []
        return [one.work for one in released]

    @invariant()
    def what_is_held_is_what_the_model_holds(self) -> None:
        waiting = [work for line in self.waiting.values() for work in line]
        assert self.in_flight.held == {*waiting, *self.ready, *(work for batch in self.out for work in batch)}

    @invariant()
    def no_more_is_claimed_than_workers_can_begin(self) -> None:
        """A worker that has a batch has no room, however few rows are in it."""
        assert self.in_flight.room <= self.in_flight.capacity - self.batch * len(self.out) - len(self.ready)
        if not self.out and not self.ready and not self.waiting:
            assert self.in_flight.room == self.in_flight.capacity


def test_batches_hold_what_was_claimed_and_no_more_is_claimed_than_workers_can_begin() -> None:
    run_state_machine_as_test(
        BatchesInFlightModel, settings=settings(max_examples=150, stateful_step_count=40, deadline=None)
    )
