"""Step tasks: a row goes from step to step, is tried again, parked, and resumed."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import UTC
from sqlqueue.consumer import Consumer
from sqlqueue.steps import Task
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Database, OpenBroker
from sqlqueue.testing.contract.step_kinds import (
    GREETER,
    RESTING,
    Count,
    Greet,
    Lead,
    Part,
    Read,
    StepsBase,
    World,
    insert,
    rows,
    tasks_on,
)
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class StepsContract(StepsBase):
    """What one worker makes of a task."""

    def test_a_task_goes_on_at_once_then_later_and_is_gone_when_done(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 186"""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Read("ann"))
        drain(broker)
        assert world.seen == [("Read", "ann", 1), ("Greet", "ANN", 1)]
        assert rows(database, tasks, "step", *RESTING) == [('{"Greeter":{"Part":null}}', 0, False, None, None)]
        assert rows(database, tasks, "wakeup_at") == [(clock.now() + timedelta(seconds=60),)]
        drain(broker)
        assert len(world.seen) == 2
        clock.advance(60)
        drain(broker)
        assert world.seen[2:] == [("Part", None, 1)]
        assert rows(database, tasks, "id") == []

    def test_a_step_is_enqueued_now_after_a_while_or_at_a_time(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 187: right to the microsecond."""
        tasks = tasks_on(broker, clock)
        at = datetime(2031, 2, 3, 4, 5, 6, 789012, UTC)
        due = {
            tasks.enqueue(Read("now")): clock.now(),
            tasks.delay(Read("later"), 1.000001): clock.now() + timedelta(seconds=1, microseconds=1),
            tasks.schedule(Read("then"), at): at,
        }
        assert dict(rows(database, tasks, "id", "wakeup_at")) == due
        assert all(isinstance(id, UUID) for id in due)
        assert tasks.enqueue_many(Count(number) for number in range(3)) == 3
        assert len(rows(database, tasks, "id")) == 6

    def test_it_begins_with_the_callers_commit(self, database: Database, broker: Broker) -> None:
        tasks = tasks_on(broker)
        connection = database.connect()
        connection.execute("BEGIN")
        assert isinstance(tasks.enqueue(Read("a"), connection=connection), UUID)
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        id = tasks.delay(Read("b"), 60, connection=connection)
        connection.execute("COMMIT")
        assert rows(database, tasks, "id") == [(id,)]

    def test_a_failing_step_is_tried_up_to_its_limit_and_parked_with_its_causes(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 191"""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Read("ann"))
        world.broken = True
        for tried in range(1, 6):
            drain(broker)
            assert rows(database, tasks, "tried", "is_running", "error") == [(tried, False, None)]
            assert rows(database, tasks, "wakeup_at") == [(clock.now() + timedelta(seconds=10),)]
            clock.advance(9.999999)
            drain(broker)
            assert len(world.seen) == tried
            clock.advance(0.000001)
        drain(broker)
        error = "ValueError: nothing to greet\ncaused by: OSError: the disk is gone"
        step = '{"Greeter":{"Read":{"filename":"ann"}}}'
        assert rows(database, tasks, "step", *RESTING) == [(step, 6, False, error, None)]
        clock.advance(86400)
        drain(broker)
        assert [attempt for _, _, attempt in world.seen] == [1, 2, 3, 4, 5, 6]

    @pytest.mark.parametrize("by", ["sql", "resume"])
    def test_a_cleared_error_starts_a_fresh_count(
        self, database: Database, broker: Broker, clock: ManualClock, world: World, by: str
    ) -> None:
        """SUITE 192"""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Count(7))
        world.broken = True
        for _ in range(2):
            drain(broker)
            clock.advance(3)
        if by == "sql":
            database.execute("UPDATE pg_task SET error = NULL")
        else:
            assert tasks.resume() == 1
        for _ in range(2):
            drain(broker)
            clock.advance(3)
        assert [attempt for _, _, attempt in world.seen] == [1, 2, 1, 2]
        assert rows(database, tasks, "tried") == [(2,)]
        world.broken = False
        tasks.resume()
        drain(broker)
        assert rows(database, tasks, "id") == []

    def test_a_task_that_was_parked_before_its_limit_starts_afresh_as_well(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """Its step was mended by hand."""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Lead("nowhere"))
        drain(broker)
        database.execute("UPDATE pg_task SET error = NULL, step = ?", '{"Greeter": {"Read": {"filename": "bob"}}}')
        world.broken = True
        drain(broker)
        world.broken = False
        clock.advance(10)
        drain(broker)
        assert world.seen[1:] == [("Read", "bob", 1), ("Read", "bob", 2), ("Greet", "BOB", 1)]

    def test_each_step_keeps_its_own_limit_and_delay(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 203"""
        tasks = tasks_on(broker, clock)
        world.broken = True
        count, read = tasks.enqueue(Count(1)), tasks.enqueue(Read("ann"))
        drain(broker)
        assert dict(rows(database, tasks, "id", "wakeup_at")) == {
            count: clock.now() + timedelta(seconds=3),
            read: clock.now() + timedelta(seconds=10),
        }
        clock.advance(10)
        drain(broker)
        assert {id: bool(error) for id, error in rows(database, tasks, "id", "error")} == {count: True, read: False}

    def test_the_first_by_wakeup_at_is_taken(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 193: those that run, are parked or wait for their time are left out."""
        tasks = tasks_on(broker, clock)
        now = clock.now()
        tasks.schedule(Count(3), now - timedelta(seconds=1))
        tasks.schedule(Count(2), now - timedelta(seconds=2))
        tasks.schedule(Count(1), now - timedelta(seconds=3))
        parked, waiting = tasks.schedule(Count(0), now - timedelta(seconds=4)), tasks.delay(Count(4), 60)
        database.execute("UPDATE pg_task SET error = 'no' WHERE step LIKE '%0}}}'")
        drain(broker)
        assert [number for _, number, _ in world.seen] == [1, 2, 3]
        assert {id for (id,) in rows(database, tasks, "id")} == {parked, waiting}

    @pytest.mark.parametrize(
        ("stored", "seen"),
        [
            ('{"Greeter": {"Part": null}}', ("Part", None, 1)),
            ('{"Greeter": {"Part": {}}}', ("Part", None, 1)),
            ('{"Others": {"Count": 7}}', ("Count", 7, 1)),
            ('{"Others": {"Count": null}}', ("Count", None, 1)),
            ('{"Others": {"Count": {"number": 7, "more": true}}}', ("Count", 7, 1)),
            ('{"Greeter": {"Greet": "Zo\\u00eb"}}', ("Greet", "Zoë", 1)),
        ],
    )
    def test_what_another_program_wrote_is_run(
        self, database: Database, broker: Broker, world: World, stored: str, seen: tuple[str, Any, int]
    ) -> None:
        """SUITE 202"""
        tasks_on(broker)
        insert(database, stored)
        drain(broker)
        assert world.seen == [seen]

    def test_a_step_that_is_not_known_here_is_left_for_those_who_know_it(
        self, database: Database, broker: Broker, open_broker: OpenBroker, clock: ManualClock, world: World
    ) -> None:
        """PAINS 31: a rolling deploy. It is theirs at once, unspent, and left alone here for a minute."""
        tasks = tasks_on(broker, clock, GREETER)
        for stored in ('{"Others": {"Count": 7}}', '{"Greeter": {"Wave": null}}'):
            insert(database, stored)
        recorder = Recorder()
        for seconds, released in ((0, 2), (59, 2), (1, 4)):
            clock.advance(seconds)
            drain(broker, recorder)
            assert len(recorder.of("released")) == released
        assert rows(database, tasks, *RESTING) == [(0, False, None, None)] * 2
        another = open_broker()
        tasks_on(another, clock)
        drain(another)
        assert world.seen == [("Count", 7, 1)]

    def test_many_steps_that_are_not_known_keep_no_other_waiting(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """More than a claim can be told to leave alone: the others are hidden."""
        tasks = tasks_on(broker, clock, GREETER, workers=4)
        wave = '{"Greeter": {"Wave": null}}'
        tasks.queue.enqueue_many(wave.encode() for _ in range(1_010))
        clock.advance(1)
        tasks.enqueue(Part())
        drain(broker, timeout=60)
        assert world.seen == [("Part", None, 1)]
        waiting = rows(database, tasks, *RESTING)
        assert len([row for row in waiting if row == (0, False, None, None)]) == 1_000
        assert len([row for row in waiting if row == (0, False, None, clock.now() + timedelta(seconds=60))]) == 10

    def test_former_names_of_steps_go_on_working(self, database: Database, broker: Broker, world: World) -> None:
        aliases = {"ReadName": Read, "Old.Fetch": Read, "Old.Greet": Greet}
        tasks_on(broker, None, Task("Greeter", [Read, Greet, Part], aliases=aliases))
        for stored in (
            '{"Greeter": {"ReadName": {"filename": "a"}}}',
            '{"Old": {"Fetch": "b"}}',
            '{"Old":{"Greet":"c"}}',
        ):
            insert(database, stored)
        drain(broker)
        assert sorted(world.seen) == [("Greet", "A", 1), ("Greet", "B", 1), ("Greet", "c", 1)] + [
            ("Read", name, 1) for name in "ab"
        ]

    def test_a_worker_that_was_lost_counts_as_a_try_and_parks_at_the_limit(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 197"""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Count(7))
        ended = "locked_until = '2029-12-31 23:59:59.000000+00:00'"
        database.execute(f"UPDATE pg_task SET is_running = TRUE, tried = 1, {ended}")  # noqa: S608 - the test's own
        world.broken = True
        drain(broker)
        assert world.seen == [("Count", 7, 2)]
        tasks.resume()
        database.execute(f"UPDATE pg_task SET is_running = TRUE, tried = 2, {ended}")  # noqa: S608
        drain(broker)
        assert len(world.seen) == 1
        ((tried, running, error, lease),) = rows(database, tasks, *RESTING)
        assert (tried, running, lease) == (2, False, None)
        assert "the worker was lost in the last of 2 attempts" in error

    def test_what_another_programs_worker_runs_is_left_alone(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 196: it has no lease. Unless it is told when such a worker counts as gone."""
        tasks = tasks_on(broker, clock)
        tasks.enqueue(Count(7))
        database.execute("UPDATE pg_task SET is_running = TRUE, updated_at = '2029-12-31 23:59:00+00:00'")
        drain(broker)
        assert world.seen == []
        assert rows(database, tasks, *RESTING) == [(0, True, None, None)]

    def test_it_is_adopted_after_so_long_without_a_change(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        tasks = tasks_on(broker, clock, adopt_after=120)
        tasks.enqueue(Count(7))
        database.execute("UPDATE pg_task SET is_running = TRUE, updated_at = '2029-12-31 23:59:00+00:00'")
        clock.advance(59)
        drain(broker)
        assert world.seen == []
        clock.advance(1)
        drain(broker)
        assert world.seen == [("Count", 7, 1)]
        assert rows(database, tasks, "id") == []

    def test_an_idle_consumer_is_woken_by_a_resumed_task(
        self, broker: Broker, world: World, recorder: Recorder
    ) -> None:
        world.broken = True
        tasks = tasks_on(broker)
        tasks.enqueue(Lead("nowhere"))
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("parked")
            assert tasks.resume(step="Lead") == 1
            recorder.wait_for("parked", count=2)
