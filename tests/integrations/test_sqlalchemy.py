"""SQLAlchemy: what runs after a session's commit, and what is refused."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from sqlqueue import Broker, DeclarationError, Queue, column, table
from sqlqueue.plugins import manager
from tests.integrations.callers import engine_of
from tests.support.database import Database

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session
else:
    pytest.importorskip("sqlalchemy")


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@pytest.fixture
def jobs(sqlite_database: Database) -> Iterator[Queue]:
    with Broker(sqlite_database.url) as broker:
        queue = broker.queue(Job)
        broker.create_tables()
        yield queue


@pytest.fixture
def engine(sqlite_database: Database) -> Iterator["Engine"]:
    with engine_of(sqlite_database, "sqlite3") as engine:
        yield engine


@pytest.fixture
def session(engine: "Engine") -> Iterator["Session"]:
    from sqlalchemy.orm import Session

    with Session(engine) as session:
        yield session


def after_commit(obj: Any, call: Callable[[], None]) -> Any:
    return manager().hook.sqlqueue_after_commit(obj=obj, call=call)


@pytest.fixture
def seen(jobs: Queue, sqlite_database: Database) -> list[int]:
    """How many rows others saw, at each call."""
    return []


@pytest.fixture
def look(seen: list[int], sqlite_database: Database) -> Callable[[], None]:
    def look() -> None:
        seen.append(sqlite_database.execute("SELECT count(*) FROM jobs")[0][0])

    return look


def test_the_call_comes_after_the_commit_and_once_for_a_transaction(
    jobs: Queue, session: "Session", seen: list[int], look: Callable[[], None]
) -> None:
    for number in range(3):
        jobs.enqueue(number, connection=session)
        assert after_commit(session, look) is True
    assert seen == []
    session.commit()
    assert seen == [3]
    jobs.enqueue(3, connection=session)
    session.commit()
    assert seen == [3]
    jobs.enqueue(4, connection=session)
    after_commit(session, look)
    session.commit()
    assert seen == [3, 5]


@pytest.mark.parametrize("end", ["rollback", "close", "invalidate"])
def test_no_call_comes_after_a_rollback(
    jobs: Queue, session: "Session", seen: list[int], look: Callable[[], None], end: str
) -> None:
    jobs.enqueue(1, connection=session)
    after_commit(session, look)
    getattr(session, end)()
    jobs.enqueue(2, connection=session)
    session.commit()
    assert seen == []


def test_a_savepoints_call_waits_for_the_commit_and_goes_with_its_rollback(
    jobs: Queue, session: "Session", seen: list[int], look: Callable[[], None]
) -> None:
    calls: list[str] = []
    jobs.enqueue(1, connection=session)
    after_commit(session, look)
    with session.begin_nested():
        with session.begin_nested():
            after_commit(session, lambda: calls.append("released"))
        after_commit(session, lambda: calls.append("released as well"))
    with session.begin_nested() as savepoint:
        with session.begin_nested():
            after_commit(session, lambda: calls.append("within what was undone"))
        after_commit(session, lambda: calls.append("undone"))
        savepoint.rollback()
    assert (seen, calls) == ([], [])
    session.commit()
    assert (seen, calls) == ([1], ["released", "released as well"])


def test_rows_of_the_sessions_own_that_wait_to_be_flushed_are_committed_with_ours(
    jobs: Queue, session: "Session", engine: "Engine", sqlite_database: Database
) -> None:
    from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        number: Mapped[str] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    order = Order(number="A-1")
    session.add(order)
    jobs.enqueue(1, connection=session)
    assert order in session.new
    session.commit()
    assert sqlite_database.execute("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM jobs)") == [(1, 1)]


def test_a_savepoint_contains_an_error_of_the_insert(database: Database) -> None:
    from sqlalchemy.orm import Session

    with Broker(database.url) as broker, engine_of(database, "psycopg") as engine, Session(engine) as session:
        jobs = broker.queue(Job)
        broker.create_tables()
        database.script("CREATE UNIQUE INDEX one_a_payload ON jobs (payload)")
        jobs.enqueue(1, connection=session)
        with pytest.raises(Exception, match=r"(?i)unique"), session.begin_nested():
            jobs.enqueue(1, connection=session)
        jobs.enqueue(2, connection=session)
        session.commit()
    assert database.execute("SELECT payload FROM jobs ORDER BY id") == [(b"1",), (b"2",)]


def test_a_session_on_a_connection_of_the_callers_is_part_of_its_transaction(
    jobs: Queue, engine: "Engine", sqlite_database: Database
) -> None:
    from sqlalchemy.orm import Session

    with engine.connect() as connection, connection.begin() as outer:
        with Session(connection) as session:
            jobs.enqueue(1, connection=session)
            session.commit()
        assert sqlite_database.execute("SELECT count(*) FROM jobs") == [(0,)]
        outer.rollback()
    assert sqlite_database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_session_that_begins_nothing_by_itself_is_begun_by_its_owner(
    jobs: Queue, engine: "Engine", sqlite_database: Database
) -> None:
    from sqlalchemy.exc import InvalidRequestError
    from sqlalchemy.orm import Session

    with Session(engine, autobegin=False) as session:
        with pytest.raises(InvalidRequestError, match="Autobegin is disabled"):
            jobs.enqueue(1, connection=session)
        with session.begin():
            jobs.enqueue(1, connection=session)
    assert sqlite_database.execute("SELECT count(*) FROM jobs") == [(1,)]


def test_a_connection_in_autocommit_mode_commits_at_once_and_its_call_comes_at_once(
    jobs: Queue, engine: "Engine", seen: list[int], look: Callable[[], None]
) -> None:
    with engine.connect() as connection:
        jobs.enqueue(1, connection=connection)
        assert after_commit(connection, look) is None
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        jobs.enqueue(2, connection=connection)
        assert after_commit(connection, look) is True
    assert seen == [1]


def test_a_transaction_that_the_caller_begins_by_block_is_joined(
    jobs: Queue, engine: "Engine", sqlite_database: Database
) -> None:
    with engine.begin() as connection:
        jobs.enqueue(1, connection=connection)
    with engine.begin() as connection:
        jobs.enqueue(2, connection=connection)
        connection.rollback()
    assert sqlite_database.execute("SELECT payload FROM jobs") == [(b"1",)]


def test_an_engine_is_no_connection(jobs: Queue, engine: "Engine") -> None:
    with pytest.raises(DeclarationError, match=r"connection=sqlalchemy\.engine\.base\.Engine is no connection"):
        jobs.enqueue(1, connection=engine)
