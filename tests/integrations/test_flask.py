"""Flask: handlers run inside an application context, one for each delivery."""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest

from sqlqueue import Broker, Consumer, DeclarationError, Queue, column, table
from sqlqueue.integrations.flask import NAME, init_app
from sqlqueue.plugins import manager
from tests.support.database import Database

if not TYPE_CHECKING:
    pytest.importorskip("flask")

import flask


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
    if manager().has_plugin(NAME):
        manager().unregister(name=NAME)


def test_each_handler_runs_in_a_context_of_its_own(jobs: Queue) -> None:
    app = flask.Flask("shop")
    seen: list[Any] = []
    app.teardown_appcontext(lambda error: seen.append(("torn down", type(error))))

    @jobs.handler
    def work(message: int) -> None:
        seen.append((message, flask.current_app.name, hasattr(flask.g, "user")))
        flask.g.user = "somebody"
        if message == 2:
            raise ZeroDivisionError

    init_app(app)
    jobs.enqueue_many([1, 2])
    Consumer(jobs.broker).run_until_idle(10)
    gone = ("torn down", type(None))
    assert seen == [(1, "shop", False), gone, (2, "shop", False), ("torn down", ZeroDivisionError)]


def test_another_app_takes_the_place_of_the_first(jobs: Queue) -> None:
    seen: list[str] = []
    jobs.handler(lambda message: seen.append(flask.current_app.name))
    init_app(flask.Flask("first"))
    init_app(flask.Flask("second"))
    jobs.enqueue(1)
    Consumer(jobs.broker).run_until_idle(10)
    assert seen == ["second"]


def test_what_is_no_app_is_refused() -> None:
    with pytest.raises(DeclarationError, match="'shop' is no Flask app; give the app itself"):
        init_app("shop")  # type: ignore[arg-type]
