"""FIFO lines: over all instances one row of a line is in work, its front, whatever holds it."""

from datetime import timedelta

import pytest

from sqlqueue.broker import Broker
from sqlqueue.outcome import Move, Settlement
from sqlqueue.strategies.claim import Claim
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Database, created
from sqlqueue.testing.contract.line_instances import ByRowLock, Declare, OnLines, OpenInstance, taken
from sqlqueue.testing.contract.line_tables import (
    LineJob,
    PlainLineJob,
    RankedLineJob,
)

RETRY = Settlement(Move.RETRY)
PARK = Settlement(Move.PARK, error="broken")

#: Seconds until a row is due again that is to be at once.
AT_ONCE = 0.001


class LinesContract(OnLines):
    """The order of a line, claim by claim."""

    def test_while_a_front_is_in_work_nothing_of_its_line_is_claimed_elsewhere_and_then_the_next(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        """SUITE 56: not even the row behind it."""
        queue = created(broker, declare(LineJob), clock)
        one, other = open_instance(queue), open_instance(queue)
        ids = [queue.enqueue(number, key="a") for number in (1, 2, 3)]
        for id in ids:
            front = one.claim()
            assert front is not None
            assert front.id == id
            assert (one.claim(), other.claim()) == (None, None)
            one, other = other, one
            other.settle(front)
        assert one.claim() is None

    @pytest.mark.parametrize("asks", [RETRY, Settlement(Move.RELEASE)], ids=["retried", "given back"])
    def test_a_front_that_comes_back_at_once_is_the_front_again(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance, asks: Settlement
    ) -> None:
        queue = created(broker, declare(PlainLineJob), clock)
        one, other = open_instance(queue), open_instance(queue)
        first, _ = [queue.enqueue(number, key="a") for number in (1, 2)]
        for _ in range(3):
            front = one.claim()
            assert front is not None
            assert front.id == first
            one.settle(front, asks)
            clock.advance(AT_ONCE)
            one, other = other, one

    def test_a_front_that_waits_for_its_retry_keeps_its_place(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        """SUITE 59, PAINS 17"""
        queue = created(broker, declare(LineJob), clock)
        one, other = open_instance(queue), open_instance(queue)
        for number in (1, 2, 3):
            queue.enqueue(number, key="a")
        order: list[Claim] = []
        for failing in (True, True, False, False, False):
            front = one.claim()
            assert front is not None
            order.append(front)
            if failing:
                one.settle(front, Settlement(Move.RETRY, due=clock.now() + timedelta(seconds=60)))
                assert (one.claim(), other.claim()) == (None, None)
                assert other.look_ahead().due == clock.now() + timedelta(seconds=60)
                clock.advance(60)
            else:
                one.settle(front)
            one, other = other, one
        assert taken(queue, order) == [1, 1, 1, 2, 3]

    def test_a_front_that_is_scheduled_ahead_holds_up_the_rows_behind_it(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        queue = created(broker, declare(LineJob), clock)
        one = open_instance(queue)
        queue.enqueue(1, key="a", delay=60)
        queue.enqueue(2, key="a")
        assert one.claim() is None
        assert one.look_ahead().due == clock.now() + timedelta(seconds=60)
        clock.advance(60)
        for number in (1, 2):
            front = one.claim()
            assert front is not None
            assert taken(queue, [front]) == [number]
            one.settle(front)

    def test_a_parked_front_leaves_the_line_and_comes_back_to_its_place(
        self,
        database: Database,
        broker: Broker,
        clock: ManualClock,
        declare: Declare,
        open_instance: OpenInstance,
    ) -> None:
        """SUITE 66"""
        queue = created(broker, declare(LineJob), clock)
        one = open_instance(queue)
        for number in (1, 2, 3):
            queue.enqueue(number, key="a")
        order = []
        for settlement in (PARK, RETRY):
            front = one.claim()
            assert front is not None
            order.append(front)
            one.settle(front, settlement)
        clock.advance(AT_ONCE)
        database.execute("UPDATE line_jobs SET error = NULL")
        for _ in range(3):
            front = one.claim()
            assert front is not None
            order.append(front)
            one.settle(front)
        assert taken(queue, order) == [1, 2, 1, 2, 3]

    def test_a_newcomer_that_sorts_before_the_front_waits_until_the_front_is_done(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        """SUITE 57, 58, PAINS 16: while it is in work, and while it waits for its retry."""
        queue = created(broker, declare(RankedLineJob), clock)
        one, other = open_instance(queue), open_instance(queue)
        queue.enqueue(5, key="a", priority=5)
        front = one.claim()
        assert front is not None
        queue.enqueue(7, key="a", priority=7)
        queue.enqueue(1, key="a", priority=1)
        assert other.claim() is None
        one.settle(front, Settlement(Move.RETRY, due=clock.now() + timedelta(seconds=60)))
        queue.enqueue(0, key="a", priority=0)
        assert (one.claim(), other.claim()) == (None, None)
        clock.advance(60)
        order = []
        for _ in range(4):
            claim = other.claim()
            assert claim is not None
            order.append(claim)
            assert one.claim() is None
            other.settle(claim)
        assert taken(queue, order) == [5, 0, 1, 7]

    def test_a_line_is_ordered_by_priority_and_then_by_id(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        queue = created(broker, declare(RankedLineJob), clock)
        one, order = open_instance(queue), []
        for number, priority in [(5, 2), (3, 1), (1, -1), (6, 2), (4, 1), (2, 0)]:
            queue.enqueue(number, key="a", priority=priority)
        while (claim := one.claim()) is not None:
            order.append(claim)
            one.settle(claim)
        assert taken(queue, order) == [1, 2, 3, 4, 5, 6]


class RowLockLinesContract(ByRowLock, LinesContract):
    """The same by row lock: for dialects whose capabilities say `row_locks`."""
