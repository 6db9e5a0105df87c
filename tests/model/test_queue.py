"""A model of the whole queue by leases on real databases: two consumers on a clock that a test moves."""

from collections.abc import Sequence

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from sqlqueue import Broker
from sqlqueue.outcome import ACKNOWLEDGE, RELEASE
from sqlqueue.strategies.claim import Claim
from tests.model.forms import BY_LEASE, Form, Others, declare
from tests.model.leased import Member
from tests.model.queue import LEASE, Table
from tests.model.rules import Producers, quick, settlements
from tests.support.database import Database


def machine(broker: Broker, form: Form, others: Others) -> type[Producers]:
    """The machine for one form of table."""

    class QueueModel(Producers):
        @initialize()
        def start(self) -> None:
            self.table = Table(broker, form, others)
            self.members = [Member(self.table), Member(self.table)]
            self.ghosts: list[Claim] = []

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
        def no_row_is_held_by_two(self) -> None:
            claims: Sequence[Claim] = [*self.ghosts, *(claim for member in self.members for claim in member.claims)]
            holding = [claim.id for claim in claims if self.table.holds(claim)]
            assert len(holding) == len(set(holding))
            lines = [line for id in holding if (line := self.table.line(self.table.rows[id])) is not None]
            assert len(lines) == len(set(lines))

    return QueueModel


def run(database: Database, form: Form, examples: int) -> None:
    with Broker(database.url) as broker:
        declare(broker, form)
        run_state_machine_as_test(machine(broker, form, Others(database)), settings=quick(examples))


@pytest.mark.parametrize("form", BY_LEASE, ids=lambda form: form.spec.name)
def test_the_queue_keeps_its_promises_on_sqlite(sqlite_database: Database, form: Form) -> None:
    run(sqlite_database, form, examples=30)


@pytest.mark.parametrize("form", BY_LEASE, ids=lambda form: form.spec.name)
def test_the_queue_keeps_its_promises_on_postgres(postgres_database: Database, form: Form) -> None:
    run(postgres_database, form, examples=12)


@pytest.mark.parametrize("form", [form for form in BY_LEASE if form.parks], ids=lambda form: form.spec.name)
def test_a_spent_row_that_is_given_back_stays_spent(database: Database, form: Form) -> None:
    """PAINS 4: a poison row that is claimed ahead by a consumer that stops starts no fresh count."""
    with Broker(database.url) as broker:
        declare(broker, form)
        table = Table(broker, form, Others(database))
        table.enqueue(None, 0, form.keys[0])
        for _ in range(form.cap or 0):
            Member(table).turn([], 1)
            table.clock.advance(LEASE)
        member = Member(table)
        member.turn([], 1)
        member.turn([(claim, RELEASE) for claim in member.claims], 0)
        again = Member(table)
        again.turn([], 1)
        assert [claim.attempt for claim in again.claims] == [(form.cap or 0) + 1]


@pytest.mark.parametrize("form", BY_LEASE, ids=lambda form: form.spec.name)
def test_an_acknowledgement_after_the_leases_end_goes_before_the_claim_of_its_own_turn(
    database: Database, form: Form
) -> None:
    """The row still holds the token, so nobody else has it, and it is not run again."""
    with Broker(database.url) as broker:
        declare(broker, form)
        table = Table(broker, form, Others(database))
        table.enqueue(None, 0, form.keys[0])
        member = Member(table)
        member.turn([], 1)
        table.clock.advance(2 * LEASE)
        member.turn([(claim, ACKNOWLEDGE) for claim in member.claims], 3)
        assert member.claims == []
        assert table.claimable() == []
