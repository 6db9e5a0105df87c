"""Django: what runs after `atomic`, connections around handlers, and what is refused."""

import threading
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from sqlqueue import Broker, Consumer, DeclarationError, Queue, column, table
from sqlqueue.plugins import manager
from sqlqueue.testing import Recorder
from tests.support.database import Database

if not TYPE_CHECKING:
    pytest.importorskip("django")

from django import db
from django.db import connection, connections, transaction

from tests.integrations.django_site import serving


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@pytest.fixture
def jobs(database: Database) -> Iterator[Queue]:
    with serving(database), Broker(database.url) as broker:
        queue = broker.queue(Job)
        broker.create_tables()
        yield queue


def count(database: Database) -> int:
    return int(database.execute("SELECT count(*) FROM jobs")[0][0])


class GivingUpError(Exception):
    """The service undoes a block."""


def undone(jobs: Queue, after_commit: Any, name: str) -> None:
    with transaction.atomic():
        jobs.enqueue(name, connection=connection)
        after_commit(name)
        raise GivingUpError


def test_the_call_comes_after_the_outermost_commit_and_never_after_a_rollback(jobs: Queue, database: Database) -> None:
    seen: list[tuple[str, int]] = []

    def after_commit(name: str) -> Any:
        return manager().hook.sqlqueue_after_commit(obj=connection, call=lambda: seen.append((name, count(database))))

    with transaction.atomic():
        jobs.enqueue(1, connection=connection)
        with transaction.atomic():
            jobs.enqueue(2, connection=connection)
            assert after_commit("released") is True
        with pytest.raises(GivingUpError):
            undone(jobs, after_commit, "to a savepoint")
        assert seen == []
    assert seen == [("released", 2)]
    with pytest.raises(GivingUpError):
        undone(jobs, after_commit, "as a whole")
    assert seen == [("released", 2)]
    jobs.enqueue(4, connection=connection)
    after_commit("outside")
    assert seen == [("released", 2), ("outside", 3)]


def test_without_djangos_autocommit_the_row_is_committed_by_hand(jobs: Queue, database: Database) -> None:
    transaction.set_autocommit(False)
    try:
        jobs.enqueue(1, connection=connection)
        assert count(database) == 0
        assert manager().hook.sqlqueue_after_commit(obj=connection, call=lambda: None) is None
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    assert count(database) == 1


def test_a_block_that_is_broken_already_is_refused_by_django(jobs: Queue, database: Database) -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(transaction.TransactionManagementError):
            jobs.enqueue(1, connection=connection)
    assert count(database) == 0


def test_an_inner_block_contains_an_error_of_the_insert(jobs: Queue, database: Database) -> None:
    database.script("CREATE UNIQUE INDEX one_a_payload ON jobs (payload)")
    with transaction.atomic():
        jobs.enqueue(1, connection=connection)
        with pytest.raises(Exception, match=r"(?i)unique"), transaction.atomic():
            jobs.enqueue(1, connection=connection)
        jobs.enqueue(2, connection=connection)
    assert count(database) == 2


def test_another_threads_connection_is_refused_by_django(jobs: Queue, database: Database) -> None:
    refused: list[str] = []

    def enqueue(given: Any) -> None:
        try:
            jobs.enqueue(1, connection=given)
        except db.DatabaseError as error:
            refused.append(str(error))

    thread = threading.Thread(target=enqueue, args=[connections["default"]])
    thread.start()
    thread.join(10)
    assert ["can only be used in that same thread" in text for text in refused] == [True]
    assert count(database) == 0


def test_a_proxy_of_something_else_is_no_connection(jobs: Queue) -> None:
    from django.core.cache import cache

    with pytest.raises(DeclarationError, match=r"django\.utils\.connection\.ConnectionProxy is no connection"):
        jobs.enqueue(1, connection=cache)


def test_a_handlers_connection_is_checked_before_and_after_it(jobs: Queue, database: Database) -> None:
    """PAINS 33: with Django's default of no age it is closed."""
    held: list[Any] = []

    @jobs.handler
    def work(message: int) -> None:
        wrapper = connections["default"]
        assert wrapper.connection is None
        with wrapper.cursor() as cursor:
            cursor.execute("SELECT 1")
        held.append(wrapper)

    seen = Recorder()
    with Consumer(jobs.broker, observers=[seen]):
        jobs.enqueue_many([1, 2])
        seen.wait_for("acknowledged", count=2)
    assert [wrapper.connection for wrapper in held] == [None, None]


def test_a_connection_that_grew_too_old_while_nothing_was_to_do_is_not_used_again(database: Database) -> None:
    """PAINS 33"""
    kept: list[tuple[Any, bool]] = []
    with serving(database, CONN_MAX_AGE=None), Broker(database.url) as broker:
        jobs = broker.queue(Job)
        broker.create_tables()

        @jobs.handler
        def work(last: bool) -> None:
            wrapper = connections["default"]
            kept.append((wrapper, wrapper.connection is not None))
            wrapper.ensure_connection()
            if last:
                wrapper.close()

        seen = Recorder()
        with Consumer(broker, observers=[seen]):
            for number, last in enumerate((False, False, True), 1):
                jobs.enqueue(last)
                seen.wait_for("acknowledged", count=number)
                kept[-1][0].close_at = None if number == 1 else 0.0  # as if its age had passed
    assert [(wrapper is kept[0][0], open) for wrapper, open in kept] == [(True, False), (True, True), (True, False)]


def test_a_connection_that_is_kept_and_was_lost_meanwhile_is_replaced_for_the_next_handler(
    postgres_database: Database,
) -> None:
    tried: list[str] = []
    with serving(postgres_database, CONN_MAX_AGE=None), Broker(postgres_database.url) as broker:
        jobs = broker.queue(Job)
        broker.create_tables()

        @jobs.handler(retry=0)
        def work(message: int) -> None:
            with connections["default"].cursor() as cursor:
                tried.append("again" if tried else "first")
                cursor.execute("SELECT 1" if tried[1:] else "SELECT pg_terminate_backend(pg_backend_pid())")
            connections["default"].close()

        seen = Recorder()
        with Consumer(broker, observers=[seen]):
            jobs.enqueue(1)
            seen.wait_for("acknowledged")
    assert tried == ["first", "again"]
