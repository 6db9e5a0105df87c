"""What holds for every connection that a service may hand to `enqueue`."""

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest

from sqlqueue import Broker, Consumer, DeclarationError, EncodeError, Queue, column, table
from sqlqueue.testing import Recorder
from tests.integrations.callers import Caller
from tests.support.database import Database

HOUR = 3600.0
ID = UUID("8f14e45f-ceea-467f-a0e6-0d8b1c2c3d4e")
AT = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))


@table("tasks")
class Task:
    id: int = column.id(generated=True)
    number: str | None = None
    locked_until: datetime | None = column.lease()
    payload: str | None = column.payload()


@table("notes")
class Note:
    """Most kinds of value, and every role that a producer fills."""

    id: UUID = column.id()
    due_at: datetime | None = column.retry_after()
    rank: int = column.priority()
    account: str | None = column.partition_key()
    locked_until: datetime | None = column.lease()
    headers: dict[str, str] | None = column.headers()
    payload: bytes = column.payload()
    day: date | None = None
    price: Decimal | None = None
    weight: float | None = None
    urgent: bool | None = None
    extra: dict[str, Any] | None = None


NOTE = Note(
    id=ID,
    due_at=AT,
    rank=-2,
    account="O'Neill \\ 100% {x} $1 ?1 :a ä€😀",
    headers={"trace": "it's \\"},
    payload=b"\x00\xff'\\%s",
    day=date(2029, 2, 28),
    price=Decimal("-12.50"),
    weight=1.5e-7,
    urgent=True,
    extra={"list": [1, None, "a'b"], "ü": {"deep": False}},
)


class JoiningTests:
    """Each on a fresh database of the caller's kind; the caller is in a transaction that has written nothing."""

    #: A database of another kind, which is not connected to.
    elsewhere: Any

    @pytest.fixture
    def broker(self, joined: Database) -> Iterator[Broker]:
        with Broker(joined.url, poll_interval=HOUR) as broker:
            yield broker

    @pytest.fixture
    def tasks(self, broker: Broker, joined: Database) -> Queue:
        """Whose rows of one number are there once: the user's own unique index."""
        queue = broker.queue(Task)
        broker.create_tables()
        joined.script("CREATE UNIQUE INDEX one_a_number ON tasks (number)")
        joined.script("CREATE TABLE orders (number text)")
        return queue

    @pytest.fixture
    def notes(self, broker: Broker) -> Queue:
        queue = broker.queue(Note)
        broker.create_tables()
        return queue

    def test_the_callers_commit_makes_its_rows_and_ours_visible_together(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        caller.execute("INSERT INTO orders VALUES ('A-1')")
        id = tasks.enqueue("a", connection=caller.connection)
        assert tasks.enqueue_many(range(3), connection=caller.connection) == 3
        assert joined.execute("SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM orders)") == [(0, 0)]
        caller.commit()
        assert joined.execute("SELECT id, payload FROM tasks ORDER BY id LIMIT 1") == [(id, '"a"')]
        assert joined.execute("SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM orders)") == [(4, 1)]

    def test_a_transaction_of_our_insert_alone_is_the_callers_to_commit(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        tasks.enqueue("x", connection=caller.connection)
        assert joined.execute("SELECT count(*) FROM tasks") == [(0,)]
        caller.commit()
        assert joined.execute("SELECT count(*) FROM tasks") == [(1,)]

    def test_the_callers_rollback_leaves_nothing(self, joined: Database, tasks: Queue, caller: Caller) -> None:
        tasks.enqueue("x", connection=caller.connection)
        tasks.enqueue_many(range(3), connection=caller.connection)
        caller.rollback()
        caller.begin()
        tasks.enqueue("y", connection=caller.connection)
        caller.commit()
        assert joined.execute("SELECT payload FROM tasks") == [('"y"',)]

    def test_a_duplicate_that_is_ignored_leaves_the_transaction_usable(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        """PAINS 32"""
        tasks.enqueue(Task(number="A-1", payload="1"))
        caller.execute("INSERT INTO orders VALUES ('A-1')")
        for number, expected in (("A-1", False), ("A-2", True), ("A-2", False)):
            row = Task(number=number, payload="2")
            id = tasks.enqueue(row, on_conflict="ignore", connection=caller.connection)
            assert (id is not None) is expected
        caller.execute("INSERT INTO orders VALUES ('A-2')")
        caller.commit()
        assert joined.execute("SELECT number, payload FROM tasks ORDER BY id") == [("A-1", "1"), ("A-2", "2")]
        assert joined.execute("SELECT count(*) FROM orders") == [(2,)]

    def test_a_duplicate_that_is_not_ignored_is_the_drivers_own_error(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        tasks.enqueue(Task(number="A-1", payload="1"))
        with pytest.raises(Exception, match=r"(?i)unique") as caught:
            tasks.enqueue(Task(number="A-1", payload="2"), connection=caller.connection)
        assert type(caught.value).__module__.partition(".")[0] == caller.driver
        assert "IntegrityError" in [kind.__name__ for kind in type(caught.value).__mro__]
        caller.rollback()
        caller.begin()
        with pytest.raises(type(caught.value)):
            tasks.enqueue_many(
                [Task(number=number, payload="2") for number in ("A-2", "A-1")], connection=caller.connection
            )
        caller.rollback()
        assert joined.execute("SELECT payload FROM tasks") == [("1",)]

    def test_one_of_many_that_cannot_be_stored_keeps_all_out_and_ends_no_transaction(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        with pytest.raises(EncodeError):
            tasks.enqueue_many([1, object()], connection=caller.connection)
        assert tasks.enqueue_many([2, 3], connection=caller.connection) == 2
        caller.commit()
        assert joined.execute("SELECT payload FROM tasks ORDER BY id") == [("2",), ("3",)]

    def test_one_of_many_that_the_driver_refuses_keeps_all_out_and_ends_no_transaction(
        self, joined: Database, notes: Queue, caller: Caller
    ) -> None:
        refused = Note(id=uuid4(), rank=0, payload=b"", extra={"no": object()})
        with pytest.raises(Exception, match="object is not JSON serializable"):
            notes.enqueue_many([NOTE, refused], connection=caller.connection)
        notes.enqueue(NOTE, connection=caller.connection)
        caller.commit()
        assert joined.execute("SELECT count(*) FROM notes") == [(1,)]

    def test_who_makes_many_rows_may_use_the_connection_meanwhile(
        self, joined: Database, tasks: Queue, caller: Caller
    ) -> None:
        """As SQLAlchemy does, where a row reads an attribute that is not loaded yet."""

        def rows() -> Iterator[int]:
            for number in range(3):
                tasks.enqueue(number + 10, connection=caller.connection)
                yield number

        assert tasks.enqueue_many(rows(), connection=caller.connection) == 3
        caller.commit()
        assert joined.execute("SELECT payload FROM tasks ORDER BY id") == [(str(n),) for n in (10, 11, 12, 0, 1, 2)]

    def test_every_kind_of_value_arrives_as_it_does_by_our_own_connection(
        self, joined: Database, notes: Queue, caller: Caller
    ) -> None:
        assert notes.enqueue(NOTE, connection=caller.connection) == ID
        caller.commit()
        theirs = joined.execute("SELECT * FROM notes")
        joined.execute("DELETE FROM notes")
        caller.begin()
        assert notes.enqueue_many([NOTE], connection=caller.connection) == 1
        caller.commit()
        many = joined.execute("SELECT * FROM notes")
        joined.execute("DELETE FROM notes")
        notes.enqueue(NOTE)
        assert [theirs, many] == [joined.execute("SELECT * FROM notes")] * 2

    def test_none_is_stored_as_null(self, joined: Database, notes: Queue, caller: Caller) -> None:
        notes.enqueue(Note(id=ID, rank=0, payload=b""), connection=caller.connection)
        caller.commit()
        given = joined.execute("SELECT due_at, account, headers, day, price, weight, urgent, extra FROM notes")
        assert given == [(None,) * 8]

    def test_key_headers_priority_and_time_are_stored_and_a_handler_gets_them(
        self, broker: Broker, notes: Queue, caller: Caller
    ) -> None:
        seen: list[Any] = []
        note = Note(id=ID, rank=0, payload=b"\xff\x00")
        options: dict[str, Any] = {"key": "acme", "headers": {"size": 3}, "priority": 7, "delay": timedelta(0)}
        notes.enqueue(note, **options, connection=caller.connection)
        caller.commit()

        @notes.handler
        def work(payload: bytes, delivery: Any) -> None:
            seen.append((payload, delivery.id, delivery.key, dict(delivery.headers)))

        Consumer(broker).run_until_idle(10)
        assert seen == [(b"\xff\x00", ID, "acme", {"size": "3"})]

    def test_the_commit_wakes_an_idle_consumer(self, joined: Database, tasks: Queue, caller: Caller) -> None:
        """Which would look again in an hour: by the notification, or by SQLite's watcher."""
        seen = Recorder()
        with Broker(joined.url, poll_interval=HOUR, notify=joined.kind == "postgres") as broker:
            queue = broker.queue(Task)
            queue.handler(lambda payload: None)
            with Consumer(broker, observers=[seen]):
                queue.enqueue(1)
                seen.wait_for("acknowledged")
                queue.enqueue(2, connection=caller.connection)
                caller.commit()
                seen.wait_for("acknowledged", count=2)
                caller.begin()
                queue.enqueue_many([3, 4], connection=caller.connection)
                caller.commit()
                seen.wait_for("acknowledged", count=4)

    def test_a_connection_to_another_kind_of_database_is_refused_by_its_name(
        self, joined: Database, caller: Caller
    ) -> None:
        with Broker(self.elsewhere) as elsewhere, pytest.raises(DeclarationError) as caught:
            elsewhere.queue(Task).enqueue("x", connection=caller.connection)
        kind = type(caller.connection)
        assert f"connection={kind.__module__}.{kind.__qualname__}" in str(caught.value)
        assert "that sqlqueue knows; give, to that database, the driver's own connection" in str(caught.value)
        caller.rollback()
