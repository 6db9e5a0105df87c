"""A model of batches that connections hold, on real databases: two consumers that settle a batch and claim the next."""

from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqlqueue import Broker, Role
from sqlqueue.consumer.subscription import connection_strategy_for
from sqlqueue.outcome import Move, Settlement
from sqlqueue.spec import AdvisoryLock, TableSpec
from sqlqueue.strategies.claim import Claim, Turn
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract.harness import created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, ROW_LOCK, held_by
from sqlqueue.testing.contract.own_locks import Registry
from sqlqueue.testing.contract.tables import KeyedJob
from tests.model.rules import quick
from tests.support.database import Database

#: Rows of one claim at most, and rows in the table.
BATCH, MOST = 3, 8

MOVES = st.sampled_from([Move.FINISH, Move.FINISH, Move.RETRY, Move.RELEASE])


@attrs.define
class Row:
    id: int
    key: str
    due: datetime | None = None
    attempt: int = 0
    holder: int | None = None


class Member:
    """A consumer: a connection of its own, and the batch that it holds."""

    def __init__(self, broker: Broker, spec: TableSpec, stack: ExitStack) -> None:
        queue = broker.queue(spec)
        queue.handler(batch=BATCH, workers=2)(lambda messages: None)
        assert queue.registered is not None
        columns = [one for one in queue.spec.columns if one.role is Role.PAYLOAD]
        self.strategy = connection_strategy_for(queue, queue.registered, columns, broker.pool)
        self.connection: Any = stack.enter_context(broker.pool.direct())
        self.claims: list[Claim] = []


def machine(database: Database, spec: TableSpec) -> type[RuleBasedStateMachine]:
    by_lock = spec.advisory_lock is not None

    class BatchModel(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.stack = ExitStack()
            self.clock = ManualClock()
            self.brokers = [self.stack.enter_context(Broker(database.url)) for _ in range(2)]
            self.queue = created(self.brokers[0], attrs.evolve(spec, clock=self.clock))
            database.execute("DELETE FROM keyed_jobs")
            self.members = [Member(broker, self.queue.spec, self.stack) for broker in self.brokers]
            self.rows: dict[int, Row] = {}

        def teardown(self) -> None:
            for member in self.members:
                for claim in member.claims:
                    member.strategy.let_go(member.connection, claim)
            self.stack.close()

        @precondition(lambda self: len(self.rows) < MOST)
        @rule(keys=st.lists(st.sampled_from("abcd"), min_size=1, max_size=4))
        def rows_are_enqueued(self, keys: list[str]) -> None:
            for key in keys:
                id = self.queue.enqueue("x", key=key)
                self.rows[id] = Row(id, key)

        @rule(who=st.integers(0, 1), limit=st.integers(0, BATCH), data=st.data())
        def a_batch_is_settled_and_the_next_claimed(self, who: int, limit: int, data: st.DataObject) -> None:
            member, now = self.members[who], self.clock.now()
            moves = [data.draw(MOVES) for _ in member.claims]
            settlements = [(claim, Settlement(move)) for claim, move in zip(member.claims, moves, strict=True)]
            turned = member.strategy.turn(member.connection, Turn(settlements=settlements, limit=limit, now=now))
            assert (turned.failed, list(turned.lost), list(turned.gone)) == (None, [], [])
            for claim, move in zip(member.claims, moves, strict=True):
                self.settled(self.rows[claim.id], move, now)
            member.claims = list(turned.claims)
            self.check_claimed(who, limit, now)

        @precondition(lambda self: by_lock and any(len(member.claims) > 1 for member in self.members))
        @rule(data=st.data(), move=MOVES)
        def a_row_of_a_batch_is_settled_by_itself(self, data: st.DataObject, move: Move) -> None:
            member = data.draw(st.sampled_from([one for one in self.members if len(one.claims) > 1]))
            claim = data.draw(st.sampled_from(member.claims))
            settling = Turn(settlements=[(claim, Settlement(move))], now=self.clock.now())
            member.strategy.turn(member.connection, settling)
            member.claims.remove(claim)
            self.settled(self.rows[claim.id], move, self.clock.now())

        @precondition(lambda self: any(row.holder is None for row in self.rows.values()))
        @rule(data=st.data())
        def another_program_deletes_a_row(self, data: st.DataObject) -> None:
            id = data.draw(st.sampled_from([row.id for row in self.rows.values() if row.holder is None]))
            database.execute("DELETE FROM keyed_jobs WHERE id = ?", id)
            del self.rows[id]

        @rule(seconds=st.sampled_from([0.00001, 1, 2]))
        def time_passes(self, seconds: float) -> None:
            self.clock.advance(seconds)

        def settled(self, row: Row, move: Move, now: datetime) -> None:
            row.holder = None
            if move is Move.FINISH:
                del self.rows[row.id]
            elif move is Move.RETRY:
                row.attempt += 1
                row.due = now + timedelta(microseconds=1)

        def check_claimed(self, who: int, limit: int, now: datetime) -> None:
            claims = self.members[who].claims
            held = {row.key for row in self.rows.values() if row.holder is not None}
            free = [row for row in self.rows.values() if row.holder is None and (row.due is None or row.due <= now)]
            if by_lock:
                free = [row for row in free if row.key not in held]
            claimed = [self.rows[claim.id] for claim in claims]
            assert [row for row in claimed if row not in free] == []
            assert len({row.id for row in claimed}) == len(claimed)
            keys: Sequence[object] = [row.key if by_lock else row.id for row in free]
            assert len(claimed) == min(limit, len(set(keys)))
            assert not by_lock or len({row.key for row in claimed}) == len(claimed)
            for claim, row in zip(claims, claimed, strict=True):
                row.holder = who
                assert claim.attempt == row.attempt + 1

        @invariant()
        def the_table_holds_what_the_model_holds(self) -> None:
            found = dict(shown(database, self.queue, "id", "attempt"))
            assert set(found) == set(self.rows)
            free = [row for row in self.rows.values() if row.holder is None]
            assert [found[row.id] for row in free] == [row.attempt for row in free]

    return BatchModel


def test_batches_that_row_locks_hold(postgres_database: Database) -> None:
    run_state_machine_as_test(machine(postgres_database, held_by(ROW_LOCK, KeyedJob)), settings=quick(15))


def test_batches_that_advisory_locks_hold(database: Database) -> None:
    spec = held_by(ADVISORY_LOCK, KeyedJob, "accounts-{account}")
    run_state_machine_as_test(machine(database, spec), settings=quick(15))


def test_batches_that_locks_of_the_users_own_hold(database: Database) -> None:
    registry = Registry()
    lock = AdvisoryLock("accounts-{account}", lock=registry.lock, unlock=registry.unlock)
    run_state_machine_as_test(machine(database, held_by(ADVISORY_LOCK, KeyedJob, lock)), settings=quick(15))
    assert registry.held == {}
