"""FIFO lines: over all instances one row of a line is in work, its front, whatever holds it."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import pytest

from sqlqueue.broker import Broker
from sqlqueue.queue import Queue
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import fill
from sqlqueue.strategies.base import Claim, Move, Settlement
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created
from sqlqueue.testing.contract.line_tables import (
    GroupedLineJob,
    LineGroupJob,
    LineJob,
    OpenInstance,
    PlainLineJob,
    RankedLineJob,
    by_row_lock,
    instances,
    with_key_of,
)

RETRY = Settlement(Move.RETRY)
PARK = Settlement(Move.PARK, error="broken")

#: Seconds until a row is due again that is to be at once.
AT_ONCE = 0.001

# Many rows by another program, numbered from 0.
FILL = """
INSERT INTO line_jobs (account, due_at, attempt, payload)
WITH RECURSIVE numbers(number) AS (
    SELECT 0
    UNION ALL
    SELECT number + 1 FROM numbers
    WHERE number < {many} - 1
)
SELECT {account}, {due_at}, 0, CAST(number AS text) FROM numbers
"""

Declare = Callable[["type | TableSpec"], TableSpec]


def taken(queue: Queue, claims: "list[Claim]") -> list[Any]:
    """What the rows' payloads say, in the order in which they were claimed."""
    columns = [column.field for column in queue.spec.columns]
    at = columns.index("payload")
    return [int(claim.row[at]) for claim in claims]


def filled(database: Database, many: int, account: str, due_at: str = "NULL") -> None:
    """Fill `line_jobs` with rows whose columns are these expressions over `number`."""
    database.execute(fill(FILL, {"many": str(many), "account": account, "due_at": due_at}))


class LinesContract(Contract):
    """The order of lines, claim by claim: by lease."""

    #: What makes of a table with a lease the one that is tried.
    declared_for: ClassVar[Declare] = staticmethod(spec_of)

    @pytest.fixture
    def declare(self) -> Declare:
        return self.declared_for

    @pytest.fixture
    def open_instance(self, broker: Broker) -> Iterator[OpenInstance]:
        with instances() as open_instance:
            yield open_instance

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

    def test_rows_of_no_line_are_not_held_up_by_each_other(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        queue = created(broker, declare(LineJob), clock)
        one, other = open_instance(queue), open_instance(queue)
        for number, key in enumerate([None, "a", None, "a", None]):
            queue.enqueue(number, key=key)
        claims = [claim for instance in (one, other, one, other, one) if (claim := instance.claim())]
        assert sorted(taken(queue, claims)) == [0, 1, 2, 4]
        assert [number for number in taken(queue, claims) if number != 1] == [0, 2, 4]

    def test_neither_rows_of_no_line_nor_lines_keep_the_others_waiting(
        self,
        database: Database,
        broker: Broker,
        clock: ManualClock,
        declare: Declare,
        open_instance: OpenInstance,
    ) -> None:
        queue = created(broker, declare(LineJob), clock)
        one = open_instance(queue)
        filled(database, 40, "CASE number % 2 WHEN 1 THEN 'a' END")
        kinds = []
        for _ in range(20):
            claim = one.claim()
            assert claim is not None
            kinds += [number % 2 for number in taken(queue, [claim])]
            one.settle(claim)
        assert kinds.count(0) == kinds.count(1) == 10

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

    def test_one_queue_serves_every_group_and_another_its_group_alone_and_both_keep_the_lines(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        """SUITE 63"""
        spec = declare(LineGroupJob)
        everything = created(broker, spec, clock)
        a, b = (created(broker, spec, clock, group=group) for group in "ab")
        whole, alone = open_instance(everything), open_instance(a)
        for number in range(3):
            a.enqueue(number)
            b.enqueue(10 + number)
        first = alone.claim()
        assert first is not None
        assert alone.claim() is None
        rest = whole.claim_all()
        assert (taken(a, [first]), taken(a, rest)) == ([0], [10])
        alone.settle(first)
        second = whole.claim()
        assert second is not None
        assert taken(a, [second]) == [1]
        assert alone.claim() is None
        whole.settle(second)
        assert taken(a, alone.claim_all()) == [2]

    def test_a_key_beside_a_group_is_a_line_of_that_group(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        spec = declare(GroupedLineJob)
        a, b = (created(broker, spec, clock, group=group) for group in "ab")
        for number in range(2):
            a.enqueue(number, key="x")
            b.enqueue(10 + number, key="x")
            a.enqueue(20 + number, key="y")
        in_a, in_b, also_in_a = open_instance(a), open_instance(b), open_instance(a)
        claims = in_a.claim_all()
        assert sorted(taken(a, claims)) == [0, 20]
        assert also_in_a.claim_all() == []
        assert taken(b, in_b.claim_all()) == [10]
        in_a.settle(claims[0])
        assert sorted(taken(a, [*claims, *also_in_a.claim_all()])) in ([0, 1, 20], [0, 20, 21])

    @pytest.mark.parametrize(
        ("kind", "keys"),
        [
            (int, [2, -1, 10**12]),
            (str, ["b", "", "a'\"{}\\,NULL"]),
            (UUID, [UUID(int=number) for number in (2, 1, 2**127)]),
        ],
        ids=["int", "str", "uuid"],
    )
    def test_keys_of_each_type_make_lines(
        self,
        broker: Broker,
        clock: ManualClock,
        declare: Declare,
        open_instance: OpenInstance,
        kind: type,
        keys: list[Any],
    ) -> None:
        queue = created(broker, with_key_of(declare(LineJob), kind), clock)
        one, other, order = open_instance(queue), open_instance(queue), []
        for number in range(6):
            queue.enqueue(number, key=keys[number % 3])
        for _ in range(2):
            claims = one.claim_all()
            assert other.claim() is None
            order += claims
            for claim in claims:
                one.settle(claim)
            one, other = other, one
        assert sorted(taken(queue, order[:3])) == [0, 1, 2]
        assert sorted(taken(queue, order[3:])) == [3, 4, 5]

    def test_every_line_has_its_turn(
        self, broker: Broker, clock: ManualClock, declare: Declare, open_instance: OpenInstance
    ) -> None:
        queue = created(broker, declare(LineJob), clock)
        one, order = open_instance(queue), []
        for number in range(9):
            queue.enqueue(number, key="bca"[number % 3])
        for _ in range(9):
            claim = one.claim()
            assert claim is not None
            order.append(claim)
            one.settle(claim)
        assert [sorted(taken(queue, order[start : start + 3])) for start in (0, 3, 6)] == [
            [0, 1, 2],
            [3, 4, 5],
            [6, 7, 8],
        ]

    def test_a_long_line_that_is_held_up_keeps_no_other_waiting(
        self,
        database: Database,
        broker: Broker,
        clock: ManualClock,
        declare: Declare,
        open_instance: OpenInstance,
    ) -> None:
        """PAINS 16"""
        queue = created(broker, declare(LineJob), clock)
        one = open_instance(queue)
        filled(database, 10_000, "'busy'")
        front = one.claim()
        assert front is not None
        queue.enqueue(-1, key="idle")
        assert taken(queue, one.claim_all()) == [-1]

    def test_a_free_line_behind_thousands_that_are_held_up_is_found_in_the_end(
        self,
        database: Database,
        broker: Broker,
        clock: ManualClock,
        declare: Declare,
        open_instance: OpenInstance,
    ) -> None:
        queue = created(broker, declare(LineJob), clock)
        filled(database, 2_500, "'a' || CAST(number AS text)", "'2100-01-01 00:00:00'")
        queue.enqueue(-1, key="b")
        queue.enqueue(-2, key="b")
        one = open_instance(queue)
        claims = [claim for _ in range(4) if (claim := one.claim()) is not None]
        assert taken(queue, claims) == [-1]
        one.settle(claims[0])
        assert taken(queue, [claim for _ in range(4) if (claim := one.claim()) is not None]) == [-2]


class RowLockLinesContract(LinesContract):
    """The same by row lock: for dialects whose capabilities say `row_locks`."""

    declared_for: ClassVar[Declare] = staticmethod(by_row_lock)
