"""Step tasks: what is no step, leads to none, or cannot be stored is refused, or parked, and stops nobody."""

from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.errors import EncodeError
from sqlqueue.steps import Next
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Database
from sqlqueue.testing.contract.step_kinds import (
    ANSWERS,
    RESTING,
    Answer,
    Anything,
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


def nested(depth: int) -> str:
    return '{"Others":{"Anything":' + "[" * depth + "]" * depth + "}}"


class StepRefusalsContract(StepsBase):
    """What is not run, or goes no further."""

    @pytest.mark.parametrize("step", [Anything(object()), Anything(float("nan")), "no step", Read])
    def test_a_first_step_that_cannot_be_stored_is_refused(self, database: Database, broker: Broker, step: Any) -> None:
        """SUITE 188"""
        tasks = tasks_on(broker)
        with pytest.raises(EncodeError, match=r"cannot be stored as JSON|is no step of this queue's tasks"):
            tasks.enqueue(step)
        assert rows(database, tasks, "id") == []

    @pytest.mark.parametrize(
        ("where", "said"), [("nowhere", "returned None; return Next.now"), ("on", "step Anything of task Others")]
    )
    def test_a_step_that_leads_to_none_that_can_be_stored_is_parked_at_once(
        self, database: Database, broker: Broker, world: World, where: str, said: str
    ) -> None:
        """SUITE 189: whatever its limit; it counts as tried."""
        tasks = tasks_on(broker)
        tasks.enqueue(Lead(where))
        drain(broker)
        assert len(world.seen) == 1
        ((step, tried, running, error, lease),) = rows(database, tasks, "step", *RESTING)
        assert (step, tried, running, lease) == (f'{{"Others":{{"Lead":{{"where":"{where}"}}}}}}', 1, False, None)
        assert said in error

    @pytest.mark.parametrize(
        ("stored", "said"),
        [
            ("Greeter", "no JSON"),
            ("7", "not of the form"),
            ('{"Greeter": null}', "not of the form"),
            ('{"Greeter": {"Read": {}, "Part": null}}', "not of the form"),
            ('{"Greeter": {"Read": {"file": "x"}}}', "step Read of task Greeter does not decode"),
            ('{"Greeter": {"Read": {"filename": 7}}}', "step Read of task Greeter does not decode"),
            ('{"Greeter": {"Read": null}}', "step Read of task Greeter does not decode"),
        ],
    )
    def test_what_is_no_step_is_parked_unspent_and_the_others_go_on(
        self, database: Database, broker: Broker, world: World, stored: str, said: str
    ) -> None:
        """SUITE 194"""
        tasks = tasks_on(broker)
        insert(database, stored)
        tasks.enqueue(Count(1))
        drain(broker)
        assert world.seen == [("Count", 1, 1)]
        ((step, tried, running, error, lease),) = rows(database, tasks, "step", *RESTING)
        assert (step, tried, running, lease) == (stored, 0, False, None)
        assert said in error

    def test_a_step_that_is_nested_too_deeply_is_parked_and_stops_nobody(
        self, database: Database, broker: Broker, world: World
    ) -> None:
        tasks = tasks_on(broker)
        insert(database, nested(100_000))
        tasks.enqueue(Count(1))
        drain(broker)
        assert world.seen == [("Count", 1, 1)]
        ((tried, running, error, lease),) = rows(database, tasks, *RESTING)
        assert (tried, running, lease) == (0, False, None)
        assert "recursion" in error
        assert [task.step for task in tasks.list("parked")] == [None]

    @pytest.mark.parametrize(("answer", "said"), [(name, said) for name, (_, said) in ANSWERS.items()])
    def test_whatever_a_step_answers_its_row_is_settled_and_the_others_go_on(
        self, database: Database, broker: Broker, world: World, answer: str, said: str
    ) -> None:
        tasks = tasks_on(broker)
        tasks.enqueue(Answer(answer))
        drain(broker)
        tasks.enqueue(Count(1))
        drain(broker)
        assert world.seen == [("Answer", answer, 1), ("Count", 1, 1)]
        ((tried, running, error, lease),) = rows(database, tasks, *RESTING)
        assert (tried, running, lease) == (1, False, None)
        assert said in error

    def test_a_settlement_that_the_database_refuses_is_a_failure_of_the_step(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        """SUITE 198: it is tried again, and parked in the end."""
        tasks = tasks_on(broker, clock)
        database.execute("CREATE UNIQUE INDEX once ON pg_task (step)")
        waiting, refused = tasks.delay(Greet("ANN"), 3600), tasks.enqueue(Read("ann"))
        for _ in range(6):
            drain(broker)
            clock.advance(10)
        assert [step for step, _, _ in world.seen] == ["Read"] * 6
        tried = dict(rows(database, tasks, "id", "tried"))
        assert tried == {waiting: 0, refused: 6}
        (error,) = [error for _, error in rows(database, tasks, "id", "error") if error is not None]
        assert "unique" in error.lower()

    def test_no_step_and_no_time_are_refused_and_never_mean_the_end_or_at_once(
        self, database: Database, broker: Broker
    ) -> None:
        tasks = tasks_on(broker)
        nothing: Any = None
        for make, said in (
            (lambda: Next.now(nothing), r"the next step is None; give a step, or return Next.done\(\)"),
            (lambda: Next.delay(nothing, 5), r"the next step is None"),
            (lambda: Next.delay(Part(), nothing), r"Next.delay\(step, None\) names no delay"),
            (lambda: tasks.delay(Part(), nothing), r"after is None; give seconds"),
            (lambda: tasks.schedule(Part(), nothing), r"at is None; give an aware datetime"),
        ):
            with pytest.raises(TypeError, match=said):
                make()
        assert rows(database, tasks, "id") == []

    def test_a_next_step_is_made_of_a_delay_that_can_be(self) -> None:
        for wrong in (-1, float("inf"), 1e300):
            with pytest.raises(ValueError, match=r"Next.delay\(…, after\)"):
                Next.delay(Part(), wrong)
