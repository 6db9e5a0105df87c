"""What happens to a queue whatever holds its rows: producers, other programs and time. And how long models run."""

import os
from datetime import timedelta

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sqlqueue.outcome import ACKNOWLEDGE, RELEASE, Move, Settlement
from sqlqueue.strategies.claim import Claim
from tests.model.forms import UNREAD, Form
from tests.model.queue import LEASE, Table

#: Rows in the table; few, so that the same row meets many fates.
MOST = 4

AFTER = st.sampled_from([None, 1, 5, 100])
DELAYS = st.sampled_from([None, None, 0, 1, 5, 40])

#: How many times as many examples as usual: a number for a longer search than a test run has time for.
DEPTH = int(os.environ.get("SQLQUEUE_TEST_DEPTH", "1"))


def quick(examples: int, steps: int = 30) -> settings:
    return settings(
        max_examples=examples * DEPTH,
        stateful_step_count=steps,
        deadline=None,
        # What it finds is made small only in a search that may take its time: each step of that asks real databases.
        phases=[phase for phase in Phase if DEPTH > 1 or phase not in (Phase.shrink, Phase.explain)],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


class Producers(RuleBasedStateMachine):
    """`table`: what the machine's own start makes it."""

    table: Table

    @property
    def has_room(self) -> bool:
        return sum(row.group not in UNREAD for row in self.table.rows.values()) < MOST

    @precondition(lambda self: self.has_room)
    @rule(delay=DELAYS, priority=st.integers(-1, 1), data=st.data())
    def a_row_is_enqueued(self, delay: int | None, priority: int, data: st.DataObject) -> None:
        self.table.enqueue(delay, priority, data.draw(st.sampled_from(self.table.form.keys)))

    @precondition(lambda self: self.has_room)
    @rule(count=st.integers(1, 3))
    def rows_are_enqueued_together(self, count: int) -> None:
        self.table.enqueue_many(count)

    @precondition(lambda self: self.has_room)
    @rule(data=st.data())
    def another_program_inserts_a_row_with_plain_sql(self, data: st.DataObject) -> None:
        self.table.insert(data.draw(st.sampled_from(self.table.form.keys)))

    @precondition(lambda self: self.table.deletable)
    @rule(data=st.data())
    def another_program_deletes_a_row(self, data: st.DataObject) -> None:
        self.table.delete(data.draw(st.sampled_from(self.table.deletable)))

    @precondition(lambda self: self.table.parked)
    @rule(data=st.data())
    def somebody_clears_an_error(self, data: st.DataObject) -> None:
        self.table.clear_error(data.draw(st.sampled_from(self.table.parked)))

    @precondition(lambda self: self.table.parked)
    @rule(data=st.data())
    def somebody_puts_parked_rows_back_to_work(self, data: st.DataObject) -> None:
        self.table.requeue([id for id in self.table.parked if data.draw(st.booleans())])

    @rule(seconds=st.sampled_from([0.000001, 1, 5, LEASE / 2, LEASE, LEASE]))
    def time_passes(self, seconds: float) -> None:
        self.table.clock.advance(seconds)

    @invariant()
    def the_table_holds_what_the_model_holds(self) -> None:
        assert self.table.stored() == self.table.expected()

    @invariant()
    def the_dead_letters_are_those_that_the_model_buried(self) -> None:
        assert self.table.stored_dead() == self.table.dead


def settlements(form: Form, claim: Claim) -> "st.SearchStrategy[Settlement]":
    """Every way in which a delivery may end; one at its cap is not tried again."""
    due = AFTER.map(lambda after: None if after is None else form.clock.now() + timedelta(seconds=after))
    ways = [st.just(ACKNOWLEDGE), st.just(RELEASE)]
    if claim.expires is not None:
        ways.append(st.builds(Settlement, st.just(Move.RELEASE), due))
    if form.cap is None or (claim.attempt or 0) < form.cap:
        ways.append(st.builds(Settlement, st.just(Move.RETRY), due))
    if form.parks:
        ways.append(st.just(Settlement(Move.PARK, error="no")))
    if form.dead_letter is not None:
        ways.append(st.just(Settlement(Move.DEAD_LETTER, error="no")))
    return st.one_of(ways)
