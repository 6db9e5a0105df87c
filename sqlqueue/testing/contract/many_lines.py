"""FIFO lines beside each other: of groups and of keys, and beside rows of no line."""

from typing import Any
from uuid import UUID

import pytest

from sqlqueue.broker import Broker
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Database, created
from sqlqueue.testing.contract.line_instances import ByRowLock, Declare, OnLines, OpenInstance, filled, taken
from sqlqueue.testing.contract.line_tables import (
    GroupedLineJob,
    LineGroupJob,
    LineJob,
    with_key_of,
)


class ManyLinesContract(OnLines):
    """Each line is for itself, and has its turn."""

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
        for number in (-1, -2):
            claims = [claim for _ in range(4) if (claim := one.claim()) is not None]
            assert taken(queue, claims) == [number]
            one.settle(claims[0])


class RowLockManyLinesContract(ByRowLock, ManyLinesContract):
    """The same by row lock: for dialects whose capabilities say `row_locks`."""
