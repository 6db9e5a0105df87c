"""A model of what is in flight: what a dispatcher holds, what workers may take, and how much more may be claimed."""

from collections.abc import Sequence
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
from sqlqueue.consumer.in_flight import WAITING_BY_KEY, InFlight
from sqlqueue.consumer.run_handler import RELEASED, Finished, Work
from sqlqueue.outcome import ACKNOWLEDGED, Move, Settlement, Verdict
from sqlqueue.strategies.claim import Claim

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=5)
RETRIED = Verdict(Settlement(Move.RETRY, due=LATER), "retried")


class InFlightModel(RuleBasedStateMachine):
    """`waiting`: by key, the rows that stand behind the leading one; `leading`: those that a worker may have."""

    @initialize(workers=st.integers(1, 3), prefetch=st.integers(0, 2), by_key=st.booleans())
    def start(self, workers: int, prefetch: int, by_key: bool) -> None:
        self.in_flight = InFlight(workers=workers, prefetch=prefetch, by_key=by_key)
        self.workers, self.by_key = workers, by_key
        self.ids = 0
        self.leading: dict[int, Work] = {}
        self.waiting: dict[object, list[Work]] = {}
        self.started: set[int] = set()
        self.failed: dict[object, int] = {}

    # -- what the dispatcher does -----------------------------------------------------------------------------------

    @precondition(lambda self: self.in_flight.room > 0)
    @rule(key=st.sampled_from([None, "a", "b"]), data=st.data())
    def rows_are_claimed(self, key: str | None, data: st.DataObject) -> None:
        again = self.failed.get(key) if self.by_key and key not in self.busy else None
        ids = [again] if again is not None and data.draw(st.booleans()) else []
        for _ in range(data.draw(st.integers(1, self.in_flight.room)) - len(ids)):
            self.ids += 1
            ids.insert(0, self.ids)
        works = [self.work(id, key) for id in ids]
        stay = list(self.in_flight.claimed(works))
        held_back = [work for work in works if work not in stay]
        if again is not None:  # the failed row comes first, whatever the order of the claim
            works.sort(key=lambda work: work.delivery.claim.id != again)
        for work in works:
            assert (work in held_back) == self.is_held_back(work)
            if work in held_back:
                continue
            if self.by_key and key is not None and key in self.busy:
                self.waiting.setdefault(key, []).append(work)
            else:
                self.leading[work.delivery.claim.id] = work
        self.in_flight.hand_out()
        assert self.going_back() == held_back
        self.go_back(held_back)

    def work(self, id: int, key: str | None) -> Work:
        claim = Claim(id=id, token=NOW, expires=NOW, attempt=1, row=())
        return Work(Delivery("jobs", claim), key)

    def is_held_back(self, work: Work) -> bool:
        if not self.by_key or work.key is None or work.key in self.busy or work.key not in self.failed:
            return False
        return bool(self.failed[work.key] != work.delivery.claim.id)

    @property
    def busy(self) -> set[object]:
        return {work.key for work in self.leading.values() if work.key is not None}

    @precondition(lambda self: self.started)
    @rule(data=st.data(), how=st.sampled_from(["settled", "retried", "dropped"]))
    def a_row_comes_back_from_its_worker(self, data: st.DataObject, how: str) -> None:
        self.leaves(self.leading[data.draw(st.sampled_from(sorted(self.started)))], how)

    @precondition(lambda self: self.leading or any(self.waiting.values()))
    @rule(data=st.data())
    def a_row_is_found_lost(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(sorted(self.in_flight.held, key=lambda work: int(work.delivery.claim.id))))
        work.delivery.lose()
        self.leaves(work, "dropped")

    def leaves(self, work: Work, how: str) -> None:
        id, key = work.delivery.claim.id, work.key
        behind: list[Work] = []
        if id in self.leading:
            del self.leading[id]
            self.started.discard(id)
            behind = self.waiting.pop(key, [])
        else:
            self.waiting[key].remove(work)
        if how == "settled":
            assert self.in_flight.settled([Finished(work, ACKNOWLEDGED)]) == []
            self.in_flight.hand_out()
            self.failed.pop(key, None)
            if behind:
                self.leading[behind[0].delivery.claim.id] = behind[0]
                self.waiting[key] = behind[1:]
            return
        if how == "retried":
            assert self.in_flight.settled([Finished(work, RETRIED)]) == [LATER]
        else:
            self.in_flight.drop(work)
        if how == "retried" and self.by_key and key is not None:
            self.failed[key] = id
        assert self.going_back() == behind
        self.go_back(behind)

    @rule()
    def the_queue_stops(self) -> None:
        unstarted = [work for line in self.waiting.values() for work in line]
        unstarted += [work for id, work in self.leading.items() if id not in self.started]
        self.in_flight.put_back_unstarted()
        back = self.going_back()
        assert sorted(map(id, back)) == sorted(map(id, unstarted))
        self.waiting.clear()
        for work in back:
            self.leading.pop(work.delivery.claim.id, None)
        self.go_back(back)

    def go_back(self, works: Sequence[Work]) -> None:
        """Rows that go back are settled by the next turn, one by one, and start nobody."""
        released, self.in_flight.unsettled = self.in_flight.unsettled, []
        assert [one.work for one in released] == list(works)
        assert self.in_flight.settled(released) == []
        assert self.in_flight.unsettled == []
        assert self.in_flight.begun == []

    def going_back(self) -> list[Work]:
        assert all(one.verdict is RELEASED for one in self.in_flight.unsettled)
        return [one.work for one in self.in_flight.unsettled]

    # -- what the workers do ----------------------------------------------------------------------------------

    @rule()
    def a_worker_asks_for_a_row(self) -> None:
        try:
            works = self.in_flight.ready.get_nowait()
        except Empty:
            assert set(self.leading) == self.started
            return
        assert works is not None
        (work,) = works
        if work.delivery.lost:
            return
        id = work.delivery.claim.id
        assert work is self.leading[id]
        assert id not in self.started
        self.started.add(id)

    # -- what always holds ------------------------------------------------------------------------------------

    @invariant()
    def what_is_held_is_what_the_model_holds(self) -> None:
        waiting = [work for line in self.waiting.values() for work in line]
        assert self.in_flight.held == {*self.leading.values(), *waiting}

    @invariant()
    def one_row_of_a_key_leads(self) -> None:
        keys = [work.key for work in self.leading.values() if work.key is not None]
        assert not self.by_key or len(keys) == len(set(keys))

    @invariant()
    def no_more_is_claimed_than_there_is_room_for(self) -> None:
        waiting = sum(len(line) for line in self.waiting.values())
        beyond = max(0, waiting - self.workers * WAITING_BY_KEY)
        assert self.in_flight.room == self.in_flight.capacity - len(self.leading) - beyond


def test_what_is_in_flight_is_what_was_claimed_and_each_row_is_given_once() -> None:
    run_state_machine_as_test(InFlightModel, settings=settings(max_examples=150, stateful_step_count=40, deadline=None))
