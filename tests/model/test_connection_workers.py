"""A model of the whole queue by row locks and advisory locks: two processes on a clock that stands still."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from sqlqueue import Broker
from sqlqueue.outcome import ACKNOWLEDGE, Move, Settlement
from tests.model.connection_worker import Instance, Worker, brokers
from tests.model.forms import BY_ROW_LOCK, Form, Others, by_advisory_lock, declare
from tests.model.queue import LEASE, Table
from tests.model.rules import MOST, Producers, quick, settlements
from tests.support.database import Database


def machine(broker: Broker, form: Form, processes: Sequence[Broker], others: Others) -> type[Producers]:
    """The machine for one form of table."""

    class ConnectionWorkersModel(Producers):
        @initialize()
        def start(self) -> None:
            self.table = Table(broker, form, others)
            self.instances = [Instance(self.table, process) for process in processes]
            self.ghosts: list[tuple[Instance, Worker]] = []

        @property
        def all_taken(self) -> list[tuple[Instance, Worker]]:
            return [(one, worker) for one in self.instances for worker in one.busy_workers]

        @precondition(lambda self: any(one.free_workers for one in self.instances))
        @rule(data=st.data())
        def a_worker_looks_for_a_row(self, data: st.DataObject) -> None:
            one = data.draw(st.sampled_from([one for one in self.instances if one.free_workers]))
            one.look(one.free_workers[0])

        @precondition(lambda self: self.all_taken)
        @rule(data=st.data(), look=st.booleans())
        def a_worker_settles_its_row_and_may_look_for_another(self, data: st.DataObject, look: bool) -> None:
            one, worker = data.draw(st.sampled_from(self.all_taken))
            assert worker.claim is not None
            one.settle(worker, data.draw(settlements(form, worker.claim)), look=look)

        @rule(who=st.integers(0, 1))
        def a_process_crashes_and_another_takes_its_place(self, who: int) -> None:
            self.instances[who].crash()
            self.instances[who] = Instance(self.table, processes[who])

        @precondition(lambda self: others.kind == "postgres" and self.losable)
        @rule(data=st.data())
        def the_sessions_of_a_process_end_and_it_connects_again(self, data: st.DataObject) -> None:
            one = data.draw(st.sampled_from(self.losable))
            self.ghosts += [(one, worker) for worker in one.lose_sessions()]

        @property
        def losable(self) -> list[Instance]:
            return [one for one in self.instances if one.busy_workers]

        @precondition(lambda self: self.ghosts)
        @rule(data=st.data())
        def what_a_worker_still_says_on_a_lost_session_changes_nothing(self, data: st.DataObject) -> None:
            ghost = data.draw(st.sampled_from(self.ghosts))
            one, worker = ghost
            assert worker.claim is not None
            settlement = data.draw(settlements(form, worker.claim))
            self.ghosts.remove(ghost)
            one.settle_late(worker, settlement)

        @invariant()
        def no_row_is_held_by_two_nor_two_of_a_line(self) -> None:
            held = [worker.claim.id for _, worker in self.all_taken if worker.claim is not None]
            assert len(held) == len(set(held))
            there = [self.table.rows[id] for id in held if id in self.table.rows]
            lines = [line for row in there if (line := self.table.line(row)) is not None]
            assert len(lines) == len(set(lines))

        def teardown(self) -> None:
            """Every row is worked off in the end."""
            try:
                self.work_off()
            finally:
                for one in self.instances:
                    one.crash()
                for _, worker in self.ghosts:
                    worker.close()

        def work_off(self) -> None:
            for one in self.instances:
                for worker in tuple(one.lost):  # until its worker ends a key is in work here
                    one.settle_late(worker, ACKNOWLEDGE)
            for one, worker in self.all_taken:
                one.settle(worker, ACKNOWLEDGE, look=False)
            for _ in range(3 * MOST):
                self.table.clock.advance(10 * LEASE)
                for one in self.instances:
                    one.look(one.free_workers[0])
                for one, worker in self.all_taken:
                    one.settle(worker, ACKNOWLEDGE, look=False)
            assert [row for row in self.table.rows.values() if row.unfinished] == []

    return ConnectionWorkersModel


def run(database: Database, form: Form, examples: int) -> None:
    with Broker(database.url) as broker:
        declare(broker, form)
        first, second = brokers(database)
        with first, second:
            model = machine(broker, form, [first, second], Others(database))
            run_state_machine_as_test(model, settings=quick(examples))


@pytest.mark.parametrize("form", BY_ROW_LOCK, ids=lambda form: form.spec.name)
def test_row_locks_keep_the_queues_promises(postgres_database: Database, form: Form) -> None:
    run(postgres_database, form, examples=6)


@pytest.mark.parametrize("form", by_advisory_lock("session"), ids=lambda form: form.spec.name)
def test_locks_of_sessions_keep_the_queues_promises(postgres_database: Database, form: Form) -> None:
    run(postgres_database, form, examples=6)


@pytest.mark.parametrize("form", by_advisory_lock("files"), ids=lambda form: form.spec.name)
def test_locks_on_a_file_keep_the_queues_promises(sqlite_database: Database, form: Form) -> None:
    run(sqlite_database, form, examples=12)


def by_the_user(function: str) -> Callable[[Any, str], bool]:
    """A lock function of the user's, on the session that serves the delivery."""
    ask = f"SELECT {function}(hashtextextended(%s, 7))"
    return lambda connection, key: bool(connection.execute(ask, [key]).fetchone()[0])


OWN = by_advisory_lock("own", lock=by_the_user("pg_try_advisory_lock"), unlock=by_the_user("pg_advisory_unlock"))


@pytest.mark.parametrize("form", OWN, ids=lambda form: form.spec.name)
def test_the_users_own_locks_keep_the_queues_promises(postgres_database: Database, form: Form) -> None:
    run(postgres_database, form, examples=6)


def starves_nobody(database: Database, form: Form) -> None:
    """PAINS 19: of three rows the first comes back each time, and nothing hides it."""
    first, second = brokers(database)
    with Broker(database.url) as broker, first, second:
        declare(broker, form)
        table = Table(broker, form, Others(database))
        table.enqueue_many(3)
        poison = min(table.rows)
        one = Instance(table, first)
        one.look(one.workers[0])
        for _ in range(6):
            claim = one.workers[0].claim
            assert claim is not None
            one.settle(one.workers[0], Settlement(Move.RETRY) if claim.id == poison else ACKNOWLEDGE, look=True)
        one.crash()
        assert list(table.rows) == [poison]


@pytest.mark.parametrize(
    "form", [BY_ROW_LOCK[0], by_advisory_lock("session")[0], OWN[0]], ids=lambda one: one.spec.name
)
def test_a_row_that_always_comes_back_keeps_none_waiting(postgres_database: Database, form: Form) -> None:
    starves_nobody(postgres_database, form)


def test_a_row_that_always_comes_back_keeps_none_waiting_by_locks_on_a_file(sqlite_database: Database) -> None:
    starves_nobody(sqlite_database, by_advisory_lock("files")[0])
