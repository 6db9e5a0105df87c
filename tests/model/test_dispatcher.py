"""A model of two consumers at work, stepped without threads: whatever fails, crashes, stops or comes late, each row is
finished once and none is forgotten."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

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

from sqlqueue import Broker, ColumnSpec, Delivery, Drop, Outcome, Queue, Retry, Role, TableSpec
from sqlqueue.consumer.run_handler import Work
from sqlqueue.testing import ManualClock
from sqlqueue.testing.clock import START
from tests.model.forms import Others
from tests.model.stepper import KEEN, LAZY, LEASE, Stepper
from tests.support.database import Database

CLOCK = ManualClock()


def table(name: str, *more: ColumnSpec) -> TableSpec:
    return TableSpec(
        name=name,
        clock=CLOCK,
        columns=[
            ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
            ColumnSpec(field="until", type=datetime, optional=True, role=Role.LEASE),
            ColumnSpec(field="payload", type=bytes, role=Role.PAYLOAD),
            *more,
        ],
    )


TABLES = [
    table("plain"),
    table("delayed", ColumnSpec(field="due", type=datetime, optional=True, role=Role.RETRY_AFTER)),
]

OUTCOMES = st.sampled_from([None, None, None, Retry(), Retry(5), Drop(), ValueError("no"), SystemExit(1)])


class Script:
    """A handler that does what the test has written for it: succeed, unless it says otherwise."""

    def __init__(self) -> None:
        self.next: Outcome | BaseException = None

    def handle(self, message: Any, delivery: Delivery) -> Any:
        planned, self.next = self.next, None
        if isinstance(planned, BaseException):
            raise planned
        return planned


def machine(queue: Queue, others: Others) -> type[RuleBasedStateMachine]:
    class DispatcherModel(RuleBasedStateMachine):
        @initialize(workers=st.integers(1, 3), prefetch=st.integers(0, 2))
        def start(self, workers: int, prefetch: int) -> None:
            CLOCK.set(START)
            others.ask(f"DELETE FROM {queue.spec.name}")
            self.script = Script()
            self.settings: dict[str, Any] = {"workers": workers, "prefetch": prefetch}
            self.ids: set[int] = set()
            self.crashed: list[Stepper] = []
            self.consumers = [self.consumer(KEEN), self.consumer(LAZY)]

        def consumer(self, extends: float) -> Stepper:
            return Stepper(queue, CLOCK, self.script.handle, by_key=False, extends=extends, **self.settings)

        @property
        def all(self) -> Sequence[Stepper]:
            return [*self.crashed, *self.consumers]

        @precondition(lambda self: len(self.ids) < 12)
        @rule(count=st.integers(1, 4))
        def rows_are_enqueued(self, count: int) -> None:
            self.ids |= {queue.enqueue(number) for number in range(count)}

        @rule(seconds=st.sampled_from([1, 5, LEASE / 2, LEASE + 1]))
        def time_passes(self, seconds: float) -> None:
            CLOCK.advance(seconds)

        @rule(who=st.integers(0, 1))
        def a_dispatcher_steps(self, who: int) -> None:
            assert self.consumers[who].step()

        @rule(who=st.integers(0, 1))
        def a_worker_takes_a_row(self, who: int) -> None:
            self.consumers[who].take()

        @precondition(lambda self: any(one.in_work for one in self.consumers))
        @rule(data=st.data(), outcome=OUTCOMES)
        def a_handler_ends(self, data: st.DataObject, outcome: Any) -> None:
            one = data.draw(st.sampled_from([one for one in self.consumers if one.in_work]))
            work: Work = data.draw(st.sampled_from(one.in_work))
            self.script.next = outcome
            one.handle(work)
            self.script.next = None

        @rule(who=st.integers(0, 1))
        def the_workers_hand_back_what_they_have(self, who: int) -> None:
            self.consumers[who].hand_back()

        @rule(who=st.integers(0, 1))
        def a_consumer_crashes(self, who: int) -> None:
            self.replace(who)

        @rule(who=st.integers(0, 1))
        def a_consumer_stops_and_another_starts(self, who: int) -> None:
            self.consumers[who].stop()
            assert self.consumers[who].dispatcher.held == 0
            self.replace(who)

        @rule(who=st.integers(0, 1))
        def a_consumer_gives_up_and_its_handlers_end_too_late(self, who: int) -> None:
            one = self.consumers[who]
            one.dispatcher.give_up()
            for _ in range(10):
                if not one.step():
                    break
            assert one.dispatcher.held == 0
            settled = len(one.of("acknowledged", "dropped", "retried"))
            for work in list(one.in_work):
                one.handle(work)
            one.hand_back()
            one.step()
            assert len(one.of("acknowledged", "dropped", "retried")) == settled
            self.replace(who)

        def replace(self, who: int) -> None:
            self.crashed.append(self.consumers[who])
            self.consumers[who] = self.consumer([KEEN, LAZY][who])

        def done(self) -> "Counter[int]":
            return Counter(id for one in self.all for id in one.of("acknowledged", "dropped"))

        @invariant()
        def each_row_is_in_the_table_or_finished_once(self) -> None:
            left = {id for (id,) in others.ask(f"SELECT id FROM {queue.spec.name}")}
            done = self.done()
            assert set(done.values()) <= {1}
            assert left | done.keys() == self.ids
            assert not left & done.keys()

        @invariant()
        def no_consumer_holds_more_than_it_may_nor_is_told_twice_that_it_is_late(self) -> None:
            for one in self.consumers:
                assert one.dispatcher.held <= one.in_flight.capacity
                assert one.recorder.of("trouble", "gone") == []

        def teardown(self) -> None:
            """Every row is worked off in the end."""
            for _ in range(100):
                if len(self.done()) == len(self.ids):
                    break
                CLOCK.advance(LEASE + 1)
                for one in self.consumers:
                    one.step()
                    one.take()
                    for work in list(one.in_work):
                        one.handle(work)
                    one.hand_back()
                    one.step()
            assert self.done() == Counter(self.ids)

    return DispatcherModel


def run(database: Database, spec: TableSpec, examples: int) -> None:
    quick = settings(
        max_examples=examples,
        stateful_step_count=40,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    with Broker(database.url) as broker:
        queue = broker.queue(spec)
        broker.create_tables()
        run_state_machine_as_test(machine(queue, Others(database)), settings=quick)


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_two_consumers_finish_every_row_once_on_sqlite(sqlite_database: Database, spec: TableSpec) -> None:
    run(sqlite_database, spec, 30)


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_two_consumers_finish_every_row_once_on_postgres(postgres_database: Database, spec: TableSpec) -> None:
    run(postgres_database, spec, 10)
