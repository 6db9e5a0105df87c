"""Models of what the workers of one queue share: the bell that they rest by, and the rows that they have in hand."""

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
from sqlqueue.consumer.in_flight import RowsInWork
from sqlqueue.consumer.polling import IdleWorkers
from sqlqueue.consumer.run_handler import Work
from sqlqueue.dialect import Connection
from sqlqueue.strategies.claim import Claim

QUICK = settings(max_examples=100, stateful_step_count=40, deadline=None)


class BellModel(RuleBasedStateMachine):
    """`resting` workers, and the `rings` that nobody has heard yet."""

    @initialize()
    def start(self) -> None:
        self.bell = IdleWorkers()
        self.resting = self.rings = 0

    @precondition(lambda self: self.resting < 4)
    @rule()
    def a_worker_begins_to_rest(self) -> None:
        self.bell.rests()
        self.resting += 1

    @rule()
    def it_rings(self) -> None:
        self.bell.ring()
        self.rings = min(self.rings + 1, self.resting)

    @precondition(lambda self: self.resting)
    @rule()
    def a_worker_wakes(self) -> None:
        """By a ring, or because its time is up."""
        self.bell.wait(0.0 if self.rings == 0 else 10.0)
        self.bell.rises()
        self.resting -= 1
        self.rings = max(0, self.rings - 1)

    @invariant()
    def each_ring_is_for_one_who_rests(self) -> None:
        assert self.bell._rings.qsize() == self.rings <= self.resting


class InHandModel(RuleBasedStateMachine):
    """`working` rows, and those that are being `settled`."""

    @initialize()
    def start(self) -> None:
        self.in_hand = RowsInWork()
        self.ids = 0
        self.working: list[Work] = []
        self.settling: list[Work] = []
        self.closed = False

    @precondition(lambda self: not self.closed)
    @rule()
    def a_look_finds_a_row(self) -> None:
        with self.in_hand.turn(True) as may_look:
            assert may_look
            self.ids += 1
            claim = Claim(id=self.ids, token=None, expires=None, attempt=None, row=())
            self.working.append(Work(Delivery("jobs", claim), None))
            self.in_hand.begin(self.working[-1], cast("Connection", object()))

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def a_handler_is_done(self, data: st.DataObject) -> None:
        work = data.draw(st.sampled_from(self.working))
        self.working.remove(work)
        assert self.in_hand.take(work)
        assert not self.in_hand.take(work)
        self.settling.append(work)

    @precondition(lambda self: self.settling)
    @rule()
    def its_row_is_settled(self) -> None:
        self.settling.pop()
        self.in_hand.done()

    @rule()
    def nothing_comes_to_work_any_more(self) -> None:
        taken = [work for work, _ in self.in_hand.close(0.0)]
        assert taken == self.working
        assert not any(self.in_hand.take(work) for work in taken)
        self.settling += taken
        self.working, self.closed = [], True
        with self.in_hand.turn(True) as may_look:
            assert not may_look

    @invariant()
    def what_is_in_hand_is_what_the_model_has(self) -> None:
        assert list(self.in_hand.in_work) == self.working
        assert len(self.in_hand) == len(self.working) + len(self.settling)


def test_a_ring_wakes_one_who_rests_and_none_is_lost() -> None:
    run_state_machine_as_test(BellModel, settings=QUICK)


def test_a_row_in_hand_is_settled_by_one() -> None:
    run_state_machine_as_test(InHandModel, settings=QUICK)
