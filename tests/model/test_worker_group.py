"""Models of what the connection workers of one queue share: who of them rests, and the rows in work."""

from typing import cast

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
from sqlqueue.consumer.polling import IdleWorkers
from sqlqueue.consumer.run_handler import Work
from sqlqueue.consumer.settling import RowsInWork
from sqlqueue.dialect import Connection
from sqlqueue.strategies.claim import Claim

QUICK = settings(max_examples=100, stateful_step_count=40, deadline=None)


class IdleWorkersModel(RuleBasedStateMachine):
    """`resting` workers, and the `wakes` that nobody has woken by yet."""

    @initialize()
    def start(self) -> None:
        self.idle = IdleWorkers()
        self.resting = self.wakes = 0

    @precondition(lambda self: self.resting < 4)
    @rule()
    def a_worker_begins_to_rest(self) -> None:
        self.idle.rest()
        self.resting += 1

    @rule()
    def somebody_is_woken(self) -> None:
        self.idle.wake()
        self.wakes = min(self.wakes + 1, self.resting)

    @precondition(lambda self: self.resting)
    @rule()
    def a_worker_wakes(self) -> None:
        """Somebody woke it, or its time is up."""
        self.idle.wait(0.0 if self.wakes == 0 else 10.0)
        self.idle.rise()
        self.resting -= 1
        self.wakes = max(0, self.wakes - 1)

    @invariant()
    def each_wake_up_is_for_one_who_rests(self) -> None:
        assert self.idle._wakes.qsize() == self.wakes <= self.resting


class RowsInWorkModel(RuleBasedStateMachine):
    """`working` rows, and those that are being `settled`."""

    @initialize()
    def start(self) -> None:
        self.rows = RowsInWork()
        self.ids = 0
        self.working: list[Work] = []
        self.settling: list[Work] = []
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule(count=st.integers(1, 3))
    def a_claim_finds_rows(self, count: int) -> None:
        with self.rows.changed:
            assert not self.rows.closed
            works = []
            for _ in range(count):
                self.ids += 1
                claim = Claim(id=self.ids, token=None, expires=None, attempt=None, row=())
                works.append(Work(Delivery("jobs", claim), None))
            self.rows.in_work.update(dict.fromkeys(works, cast("Connection", object())))
        self.working += works

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def a_handler_is_done_with_its_rows(self, data: st.DataObject) -> None:
        works = data.draw(st.lists(st.sampled_from(self.working), min_size=1, max_size=3, unique_by=id))
        for work in works:
            self.working.remove(work)
        assert self.rows.take(works)
        assert not self.rows.take(works)
        assert not self.rows.take([*self.working, works[0]])
        self.settling += works

    @precondition(lambda self: self.settling)
    @rule()
    def its_row_is_settled(self) -> None:
        self.settling.pop()
        self.rows.done(1)

    @rule()
    def nothing_comes_to_work_any_more(self) -> None:
        taken = [work for work, _ in self.rows.close(0.0)]
        assert taken == self.working
        assert not any(self.rows.take([work]) for work in taken)
        self.settling += taken
        self.working, self.closed = [], True
        assert self.rows.closed

    @invariant()
    def what_is_in_work_is_what_the_model_has(self) -> None:
        assert list(self.rows.in_work) == self.working
        assert len(self.rows) == len(self.working) + len(self.settling)


def test_a_wake_up_is_for_one_who_rests_and_none_is_lost() -> None:
    run_state_machine_as_test(IdleWorkersModel, settings=QUICK)


def test_a_row_in_work_is_settled_by_one() -> None:
    run_state_machine_as_test(RowsInWorkModel, settings=QUICK)
