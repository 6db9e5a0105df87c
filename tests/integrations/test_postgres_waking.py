"""On PostgreSQL without notifications: this process's consumers are woken by whoever knows of the commit."""

import subprocess
import sys
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

import pytest

from sqlqueue import Broker, Consumer, DeadLetter, column, table
from sqlqueue.testing import Recorder
from tests.integrations.callers import POSTGRES, Caller
from tests.support.availability import installed
from tests.support.database import Database

HOUR = 3600.0
LIMIT = 60.0

TELLING = [name for name in POSTGRES if name.startswith(("SQLAlchemy Session", "Flask", "Django"))]


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@table("parking_jobs")
class ParkingJob:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()
    error: str | None = column.error()


@pytest.mark.parametrize("kind", TELLING)
def test_the_commit_of_those_that_tell_of_it_wakes_a_consumer_at_once(postgres_database: Database, kind: str) -> None:
    seen = Recorder()
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        jobs = broker.queue(Job)
        broker.create_tables()
        jobs.handler(lambda message: None)
        opened: AbstractContextManager[Caller] = POSTGRES[kind](postgres_database)
        with Consumer(broker, observers=[seen]), opened as caller:
            jobs.enqueue(1)
            seen.wait_for("acknowledged")
            jobs.enqueue(2, connection=caller.connection)
            caller.commit()
            seen.wait_for("acknowledged", count=2)
            caller.begin()
            jobs.enqueue_many([3, 4], connection=caller.connection)
            caller.commit()
            seen.wait_for("acknowledged", count=4)


@pytest.mark.parametrize("kind", TELLING)
def test_so_does_that_of_rows_that_are_put_back_to_work(postgres_database: Database, kind: str) -> None:
    seen, outcomes = Recorder(), [DeadLetter("no"), None]
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        jobs = broker.queue(ParkingJob)
        broker.create_tables()
        jobs.handler(lambda message: outcomes.pop(0))
        opened: AbstractContextManager[Caller] = POSTGRES[kind](postgres_database)
        with Consumer(broker, observers=[seen]), opened as caller:
            jobs.enqueue(1)
            seen.wait_for("parked")
            assert jobs.requeue(connection=caller.connection) == 1
            caller.commit()
            seen.wait_for("acknowledged")


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_row_in_autocommit_mode_wakes_at_once(postgres_database: Database, driver: str) -> None:
    seen = Recorder()
    module: Any = pytest.importorskip(driver)
    connection = module.connect(postgres_database.url)
    connection.autocommit = True
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        jobs = broker.queue(Job)
        broker.create_tables()
        jobs.handler(lambda message: None)
        with Consumer(broker, observers=[seen]):
            jobs.enqueue(1)
            seen.wait_for("acknowledged")
            jobs.enqueue(2, connection=connection)
            seen.wait_for("acknowledged", count=2)
    connection.close()


# Django takes psycopg2 where it finds no psycopg when it is imported.
ON_PSYCOPG2 = """
import sys
sys.modules["psycopg"] = None
import psycopg2
import tests.integrations.django_site
from django.db.backends.postgresql import base
del sys.modules["psycopg"]

from django.db import connection, transaction
from sqlqueue import Broker
from tests.integrations.django_site import serving
from tests.integrations.test_postgres_waking import Job
from tests.support.database import Database

database = Database(url=sys.argv[1], kind="postgres", label="postgres-given", name="", dial=lambda: None)
with serving(database), Broker(database.url) as broker:
    jobs = broker.queue(Job)
    broker.create_tables()
    with transaction.atomic():
        jobs.enqueue("kept", connection=connection)
        jobs.enqueue_many(["kept too"], connection=connection)
    try:
        with transaction.atomic():
            jobs.enqueue("undone", connection=connection)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    print(isinstance(connection.connection, psycopg2.extensions.connection))
"""


@pytest.mark.skipif(not installed("django", "psycopg2"), reason="django and psycopg2 are not both installed")
def test_django_on_psycopg2_is_joined(postgres_database: Database) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ON_PSYCOPG2, postgres_database.url], capture_output=True, text=True, timeout=LIMIT
    )
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert postgres_database.execute("SELECT payload FROM jobs ORDER BY id") == [(b'"kept"',), (b'"kept too"',)]
