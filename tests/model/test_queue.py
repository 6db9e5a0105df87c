"""A model of the whole queue on real databases: two consumers on a clock that stands still until it is moved."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqlqueue import Broker
from sqlqueue.strategies.base import ACKNOWLEDGE, RELEASE, Claim, Move, Settlement
from tests.model.forms import FORMS, Form, Others
from tests.model.queue import LEASE, Member, Table
from tests.support.database import Database

#: Rows in the table; few, so that the same row meets many fates.
MOST = 4

AFTER = st.sampled_from([None, 1, 5, 100])
DELAYS = st.sampled_from([None, None, 0, 1, 5, 40])


def machine(broker: Broker, form: Form, others: Others) -> type[RuleBasedStateMachine]:
    """The machine for one form of table."""

    class QueueModel(RuleBasedStateMachine):
        @initialize()
        def start(self) -> None:
            self.table = Table(broker, form, others)
            self.members = [Member(self.table), Member(self.table)]
            self.ghosts: list[Claim] = []

        # -- producers ----------------------------------------------------------------------------------------

        @precondition(lambda self: len(self.table.rows) < MOST)
        @rule(delay=DELAYS, priority=st.integers(-1, 1))
        def a_row_is_enqueued(self, delay: int | None, priority: int) -> None:
            self.table.enqueue(delay, priority)

        @precondition(lambda self: len(self.table.rows) < MOST)
        @rule(count=st.integers(1, 3))
        def rows_are_enqueued_together(self, count: int) -> None:
            self.table.enqueue_many(count)

        @precondition(lambda self: len(self.table.rows) < MOST)
        @rule()
        def another_program_inserts_a_row_with_plain_sql(self) -> None:
            self.table.insert()

        @precondition(lambda self: self.table.rows)
        @rule(data=st.data())
        def another_program_deletes_a_row(self, data: st.DataObject) -> None:
            self.table.delete(data.draw(st.sampled_from(sorted(self.table.rows))))

        @precondition(lambda self: self.table.parked)
        @rule(data=st.data())
        def somebody_clears_an_error(self, data: st.DataObject) -> None:
            self.table.clear_error(data.draw(st.sampled_from(self.table.parked)))

        @rule(seconds=st.sampled_from([0.000001, 1, 5, LEASE / 2, LEASE, LEASE]))
        def time_passes(self, seconds: float) -> None:
            self.table.clock.advance(seconds)

        # -- consumers ----------------------------------------------------------------------------------------

        @rule(who=st.integers(0, 1), limit=st.integers(0, 3), data=st.data())
        def a_consumer_turns(self, who: int, limit: int, data: st.DataObject) -> None:
            member = self.members[who]
            done = [claim for claim in member.claims if data.draw(st.booleans())]
            member.turn([(claim, data.draw(settlements(form, claim))) for claim in done], limit)

        @precondition(lambda self: any(member.claims for member in self.members))
        @rule(data=st.data())
        def a_consumer_extends_its_leases(self, data: st.DataObject) -> None:
            member = data.draw(st.sampled_from([member for member in self.members if member.claims]))
            member.extend(member.claims)

        @rule(who=st.integers(0, 1))
        def a_consumer_crashes_and_another_takes_its_place(self, who: int) -> None:
            self.ghosts += self.members[who].claims
            self.members[who] = Member(self.table)

        @precondition(lambda self: self.ghosts)
        @rule(data=st.data())
        def what_a_lost_worker_still_says_is_fenced(self, data: st.DataObject) -> None:
            ghost = data.draw(st.sampled_from(self.ghosts))
            self.ghosts.remove(ghost)
            late = Member(self.table, [ghost])
            if data.draw(st.booleans()):
                late.extend([ghost])
                self.ghosts += late.claims
            else:
                late.turn([(ghost, data.draw(settlements(form, ghost)))], 0)

        # -- what always holds --------------------------------------------------------------------------------

        @invariant()
        def the_table_holds_what_the_model_holds(self) -> None:
            assert self.table.stored() == self.table.expected()

        @invariant()
        def no_row_is_held_by_two(self) -> None:
            claims: Sequence[Claim] = [*self.ghosts, *(claim for member in self.members for claim in member.claims)]
            holding = [claim.id for claim in claims if self.table.holds(claim)]
            assert len(holding) == len(set(holding))

    return QueueModel


def settlements(form: Form, claim: Claim) -> "st.SearchStrategy[Settlement]":
    """Every way in which a delivery may end; one at its cap is not tried again."""
    due = AFTER.map(lambda after: None if after is None else form.clock.now() + timedelta(seconds=after))
    ways = [st.just(ACKNOWLEDGE), st.just(RELEASE), st.builds(Settlement, st.just(Move.RELEASE), due)]
    if form.cap is None or (claim.attempt or 0) < form.cap:
        ways.append(st.builds(Settlement, st.just(Move.RETRY), due))
    if form.parks:
        ways.append(st.just(Settlement(Move.PARK, error="no")))
    return st.one_of(ways)


def run(database: Database, form: Form, examples: int, steps: int) -> None:
    quick = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    with Broker(database.url) as broker:
        broker.queue(form.spec)
        broker.create_tables()
        run_state_machine_as_test(machine(broker, form, Others(database)), settings=quick)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.spec.name)
def test_the_queue_keeps_its_promises_on_sqlite(sqlite_database: Database, form: Form) -> None:
    run(sqlite_database, form, examples=30, steps=30)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.spec.name)
def test_the_queue_keeps_its_promises_on_postgres(postgres_database: Database, form: Form) -> None:
    run(postgres_database, form, examples=12, steps=30)


@pytest.mark.parametrize("form", [form for form in FORMS if form.parks], ids=lambda form: form.spec.name)
def test_a_spent_row_that_is_given_back_stays_spent(database: Database, form: Form) -> None:
    """PAINS 4: a poison row that is claimed ahead by a consumer that stops starts no fresh count."""
    with Broker(database.url) as broker:
        broker.queue(form.spec)
        broker.create_tables()
        table = Table(broker, form, Others(database))
        table.enqueue(None, 0)
        for _ in range(form.cap or 0):
            Member(table).turn([], 1)
            table.clock.advance(LEASE)
        member = Member(table)
        member.turn([], 1)
        member.turn([(claim, RELEASE) for claim in member.claims], 0)
        again = Member(table)
        again.turn([], 1)
        assert [claim.attempt for claim in again.claims] == [(form.cap or 0) + 1]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.spec.name)
def test_an_acknowledgement_after_the_leases_end_goes_before_the_claim_of_its_own_turn(
    database: Database, form: Form
) -> None:
    """The row still holds the token, so nobody else has it, and it is not run again."""
    with Broker(database.url) as broker:
        broker.queue(form.spec)
        broker.create_tables()
        table = Table(broker, form, Others(database))
        table.enqueue(None, 0)
        member = Member(table)
        member.turn([], 1)
        table.clock.advance(2 * LEASE)
        member.turn([(claim, ACKNOWLEDGE) for claim in member.claims], 3)
        assert member.claims == []
        assert table.claimable() == []
