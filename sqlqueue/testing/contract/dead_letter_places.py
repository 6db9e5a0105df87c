"""The places of dead letters: who waits there, who comes late, what cannot take them, what there cannot be."""

import logging
from typing import Any

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.destination import Destination
from sqlqueue.errors import DeclarationError, SchemaError
from sqlqueue.outcome import DeadLetter, Move, Settlement
from sqlqueue.retry import NoRetry
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, spec_of
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.dead_letters import PLACES, SOURCE, returned
from sqlqueue.testing.contract.harness import Contract, Database, Holder, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import LEASE, ROW_LOCK, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.line_tables import GroupedLineJob
from sqlqueue.testing.contract.tables import CountedJob, DeadJob, FullJob, Job, KeptDeadJob, Order
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@table("sorted_dead_jobs")
class SortedDeadJob:
    """Asks for something that a row of the suite does not have."""

    id: int = column.id(generated=True)
    payload: str = column.payload()
    sorted_by: str


def no_token() -> str:
    raise LookupError("the tokens are spent")


@table("barred_dead_jobs")
class BarredDeadJob:
    """Nothing comes in, for want of a token."""

    id: int = column.id(generated=True)
    payload: str = column.payload()
    token: str = attrs.field(factory=no_token)


class DeadLetterPlacesContract(Contract):
    """The place of a dead letter is checked before there is one, and a move that fails loses nothing."""

    @PLACES
    def test_its_consumer_in_this_process_is_told_at_once(
        self, broker: Broker, strategy: str, place: Any, recorder: Recorder
    ) -> None:
        """Nobody polls here: an idle consumer looks when it is woken."""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        dead = broker.queue(DeadJob) if place is DeadJob else broker.queue(queue.spec, group="failed")
        broker.create_tables()
        delivered: list[Any] = []

        @dead.handler
        def work(message: Any, delivery: Delivery) -> None:
            delivered.append((message, delivery.attempt, delivery.headers[SOURCE]))

        queue.handler(dead_letter=dead)(returned)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("looked", where=lambda event: event.queue == dead.name)
            queue.enqueue("x")
            recorder.wait_for("acknowledged", where=lambda event: event.queue == dead.name)
        assert delivered == [("x", 1, "full_jobs[mail]")]

    @pytest.mark.parametrize("place", ["failed", KeptDeadJob, DeadJob], ids=["group", "table with ids", "table"])
    def test_who_comes_too_late_moves_nothing(
        self, database: Database, broker: Broker, clock: ManualClock, place: Any
    ) -> None:
        """PAINS 2: the lease has ended, and another holds the row."""
        queue = created(broker, FullJob, clock, group="mail")
        dead = broker.queue(queue.spec, "failed") if place == "failed" else created(broker, place)
        holder = Holder(queue, dead_letter=Destination(dead.spec, dead.group))
        queue.enqueue_many(["late", "in time"])
        late, _ = holder.claim()
        clock.advance(30)
        before = holder.claim()[1]
        settlement = Settlement(Move.DEAD_LETTER, error="no")
        turned = holder.settle((late, settlement), (before, settlement))
        assert (list(turned.lost), list(turned.gone)) == ([late], [])
        moved = shown(database, dead, "id" if place is not DeadJob else "number")
        if place == "failed":
            assert shown(database, queue, "id", "queue_name") == [(1, "mail"), (2, "failed")]
        else:
            assert (shown(database, queue, "id"), len(moved)) == ([(1,)], 1)

    def test_a_row_that_its_dead_letter_refuses_is_parked_and_neither_table_changes(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger
    ) -> None:
        """One transaction: a row of that id is there already."""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        queue.handler(dead_letter=KeptDeadJob)(returned)
        broker.create_tables()
        id = queue.enqueue("x")
        database.execute("INSERT INTO kept_dead_jobs (id, payload) VALUES (?, 'another')", id)
        drain(broker)
        assert shown(database, broker.queue(KeptDeadJob), "id", "payload") == [(id, "another")]
        ((found, error),) = shown(database, queue, "id", "error")
        assert (found, error.startswith("unpaid\ncould not be moved to kept_dead_jobs: ")) == (id, True)
        check_unheld(database, queue, stranger)

    def test_so_is_one_for_which_a_default_cannot_be_made(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        queue.handler(dead_letter=BarredDeadJob)(lambda message: DeadLetter("unpaid") if message % 2 else None)
        broker.create_tables()
        queue.enqueue_many(range(4))
        drain(broker)
        said = "unpaid\ncould not be moved to barred_dead_jobs: LookupError: the tokens are spent"
        found = {payload: (error or "")[: len(said)] for payload, error in shown(database, queue, "payload", "error")}
        assert found == {"0": "", "1": said, "2": "", "3": said}
        check_unheld(database, queue, stranger)

    def test_without_a_place_to_park_it_such_a_row_is_kept_hidden(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        queue.handler(dead_letter=KeptDeadJob, max_attempts=1)(returned)
        broker.create_tables()
        id = queue.enqueue("x")
        database.execute("INSERT INTO kept_dead_jobs (id, payload) VALUES (?, 'another')", id)
        with caplog.at_level(logging.ERROR, "sqlqueue"):
            drain(broker)
        (due,) = [due for (due,) in shown(database, queue, "due_at")]
        assert (due - clock.now()).total_seconds() == 3600
        assert any("hidden" in line and "could not be moved" in line for line in caplog.messages)

    @pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK], indirect=True)
    def test_a_dead_letter_leaves_its_line_and_the_next_row_comes(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 66"""
        queue = created(broker, held_by(strategy, GroupedLineJob), group="mail")
        handled: list[Any] = []

        def work(message: Any) -> None:
            handled.append(message)
            if message == 1:
                raise RuntimeError("broken")

        queue.handler(dead_letter="failed", retry=NoRetry())(work)
        for number in (1, 2, 3):
            queue.enqueue(number, key="A")
        drain(broker)
        assert handled == [1, 2, 3]
        group = queue.spec.role(Role.GROUP)
        assert group is not None
        assert shown(database, queue, group.field) == [("failed",)]

    def test_rows_of_a_queue_without_a_handler_here_are_left_to_those_who_have_one(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """PAINS 31: a rolling deploy; its attempts are not spent either."""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        newer = broker.queue(queue.spec, group="newer")
        queue.handler(dead_letter="failed", max_attempts=1)(returned)
        newer.enqueue("x")
        queue.enqueue("y")
        drain(broker)
        fields = ("queue_name", "attempt", "due_at", "error")
        assert shown(database, queue, *fields) == [("newer", 0, None, None), ("failed", 0, None, None)]

    # -- what cannot work -------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("group", "place", "said"),
        [
            ("mail", "mail", "'mail' is what the queue itself reads"),
            ("mail", FullJob, "'full_jobs' is what the queue itself reads"),
            (None, "failed", "'failed' is a group that the queue reads as well"),
            ("mail", object, "describes no table"),
            ("mail", 17, "describes no table"),
            ("mail", Order, "has no column for the payload 'payload'"),
        ],
        ids=["own group", "own table", "a group of all", "no table", "malformed", "no payload"],
    )
    def test_a_place_that_cannot_be_is_refused_where_it_is_declared(
        self, broker: Broker, group: str | None, place: Any, said: str
    ) -> None:
        """SUITE 91"""
        with pytest.raises(DeclarationError, match=said):
            broker.queue(FullJob, group).handler(dead_letter=place)(returned)

    def test_a_group_on_a_table_without_groups_is_refused_where_it_is_declared(self, broker: Broker) -> None:
        """SUITE 91"""
        with pytest.raises(DeclarationError, match=r"group='failed' is given, but no column plays the role 'group'"):
            broker.queue(Job).handler(dead_letter="failed")(returned)

    def test_a_queue_of_another_broker_is_refused(self, open_broker: OpenBroker, broker: Broker) -> None:
        """SUITE 91"""
        elsewhere = open_broker().queue(DeadJob)
        with pytest.raises(DeclarationError, match="dead_jobs is a queue of another broker"):
            broker.queue(Job).handler(dead_letter=elsewhere)(returned)

    def test_a_table_that_is_not_there_is_named_when_the_consumer_starts(self, broker: Broker, strategy: str) -> None:
        """SUITE 91"""
        created(broker, held_by(strategy, Job)).handler(dead_letter=DeadJob)(returned)
        with pytest.raises(SchemaError, match=r"table 'dead_jobs' .*: there is no such table"):
            drain(broker)

    def test_a_column_that_nothing_fills_is_named_when_the_consumer_starts(self, broker: Broker, strategy: str) -> None:
        """SUITE 87"""
        queue = created(broker, held_by(strategy, Job))
        queue.handler(dead_letter=SortedDeadJob)(returned)
        broker.create_tables()
        with pytest.raises(SchemaError, match=r"table 'sorted_dead_jobs' .*: column 'sorted_by' takes no NULL and has"):
            drain(broker)

    def test_nor_one_that_the_declaration_does_not_know(
        self, open_broker: OpenBroker, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        kept = spec_of(KeptDeadJob)
        owned = [*kept.columns, ColumnSpec(field="owner", type=str)]
        created(open_broker(), attrs.evolve(kept, columns=owned, row_class=None))
        queue.handler(dead_letter=KeptDeadJob)(returned)
        with pytest.raises(SchemaError, match="column 'owner' takes no NULL"):
            drain(broker)
