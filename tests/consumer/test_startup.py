"""What a start refuses, on every database: clear, at once, and nothing is touched."""

import logging
import threading
from datetime import datetime, timedelta, timezone

import attrs
import pytest

from sqlqueue import (
    Broker,
    Consumer,
    DeclarationError,
    DialectNotFound,
    SchemaError,
)
from sqlqueue.spec import spec_of
from tests.consumer.helpers import Inbox, Job, jobs, recorded, wait_until
from tests.support.database import Database

WARNINGS = "sqlqueue"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == WARNINGS and record.levelno == logging.WARNING
    ]


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("mysql://localhost/shop", DialectNotFound, "the URL scheme 'mysql'"),
        ("shop.db", DialectNotFound, "'shop.db' is no database URL"),
        ("", DialectNotFound, "is no database URL"),
        ("sqlite:/shop.db", DeclarationError, "sqlite:///file.db"),
        ("sqlite:///shop.db?mode=ro", DeclarationError, "takes no parameters"),
        (17, DialectNotFound, "builtins.int, which should be a URL as text or a driver's pool"),
    ],
)
def test_a_wrong_url_is_refused_when_the_broker_is_made(url: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Broker(url)


def test_a_missing_table_is_named_with_the_mend(database: Database) -> None:
    with Broker(database.url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        broker.create_tables()
        database.execute("DROP TABLE jobs")
        with pytest.raises(SchemaError, match=r"table 'jobs' .* no such table; create it .* Broker.create_tables\(\)"):
            Consumer(broker).start()


@pytest.mark.parametrize("missing", ["retry_after", "attempt", "locked_until", "payload", "error"])
def test_a_missing_column_is_named(database: Database, missing: str) -> None:
    with Broker(database.url) as broker:
        queue = broker.queue(Job)
        queue.handler(Inbox().handle)
        [create, *_] = [part for part in broker.ddl(Job).split(";\n") if "CREATE TABLE" in part]
        kept = [line for line in create.splitlines() if f'"{missing}"' not in line]
        database.script("\n".join(kept).replace(",\n)", "\n)"))
        with pytest.raises(SchemaError, match=rf"there is no column '{missing}'.*the columns are .*id"):
            Consumer(broker).start()


TYPES = {
    "postgres": {
        "id": "bigint PRIMARY KEY",
        "retry_after": "timestamptz",
        "attempt": "integer",
        "locked_until": "timestamptz",
        "payload": "bytea",
        "error": "text",
    },
    "sqlite": {
        "id": "integer PRIMARY KEY",
        "retry_after": "text",
        "attempt": "integer",
        "locked_until": "text",
        "payload": "blob",
        "error": "text",
    },
}


@pytest.mark.parametrize(("name", "type_"), [("locked_until", "integer"), ("retry_after", "real"), ("attempt", "text")])
def test_a_column_that_cannot_hold_its_role_is_refused(database: Database, name: str, type_: str) -> None:
    """SUITE 7"""
    types = {**TYPES[database.kind], name: type_}
    database.execute(f"CREATE TABLE jobs ({', '.join(f'{key} {kind}' for key, kind in types.items())})")
    with Broker(database.url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        with pytest.raises(SchemaError, match=rf"column '{name}', role "):
            Consumer(broker).start()


def test_a_start_that_is_refused_leaves_no_row_claimed_and_nothing_running(database: Database) -> None:
    before = set(threading.enumerate())
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(Inbox().handle)
        queue.enqueue(1)
        broker.queue(attrs.evolve(spec_of(Job), name="nowhere")).handler(Inbox().handle)
        consumer = Consumer(broker)
        with pytest.raises(SchemaError):
            consumer.start()
        assert consumer.health().state == "stopped"
        assert database.execute("SELECT attempt, locked_until FROM jobs") == [(0, None)]
    wait_until(lambda: not [one for one in set(threading.enumerate()) - before if one.name.startswith("sqlqueue")])


def test_a_missing_index_is_a_warning_that_prints_the_statement_to_run(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        [name] = [
            part.split('"')[1] for part in broker.ddl(Job).split(";\n") if part.lstrip().startswith("CREATE INDEX")
        ]
        with Consumer(broker):
            assert warnings(caplog) == []
        database.execute(f'DROP INDEX "{name}"')
        with Consumer(broker):
            queue.enqueue(1)
            assert inbox.next() == 1
        [warning] = warnings(caplog)
        said, _, statement = warning.partition("; run: ")
        assert "table 'jobs'" in said
        assert "no index serves the claim order" in said
        assert statement.startswith("CREATE INDEX")
        database.script(statement)
        caplog.clear()
        with Consumer(broker):
            assert warnings(caplog) == []


class Ahead:
    """A clock that is a minute before everybody else's."""

    def now(self) -> datetime:
        return datetime.now(timezone.utc) + timedelta(minutes=1)


def test_a_clock_apart_from_the_databases_is_a_warning(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(database.url) as broker:
        jobs(broker)
        queue = broker.queue(attrs.evolve(spec_of(Job), clock=Ahead()))
        queue.handler(Inbox().handle)
        consumer, _ = recorded(broker)
        with consumer:
            [warning] = warnings(caplog)
    assert "the host's clock and the database's are 60.0 s apart" in warning
    assert "more than a tenth of the lease of 30.0 s" in warning


def test_a_clock_that_is_right_enough_is_no_warning(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    with Broker(database.url, lease=601) as broker:
        jobs(broker)
        broker.queue(attrs.evolve(spec_of(Job), clock=Ahead())).handler(Inbox().handle)
        consumer, _ = recorded(broker)
        with consumer:
            assert warnings(caplog) == []
