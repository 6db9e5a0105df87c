"""SIGTERM to a process whose rows in work hold a connection: it finishes them, or gives them back, and leaves."""

import signal

from sqlqueue import Broker
from tests.consumer.helpers import insert
from tests.consumer.tables import jobs_by
from tests.support.children import child
from tests.support.database import Database
from tests.support.strategies import SEATED, by_strategy

SERVICE = "tests.consumer.service"


def prepare(database: Database, strategy: str, *numbers: int) -> None:
    with Broker(database.url) as broker:
        jobs_by(strategy, broker).enqueue_many(numbers)


def rows(database: Database) -> list[tuple[int, int]]:
    """Payload and attempt of each."""
    found = database.execute("SELECT payload, attempt FROM jobs ORDER BY id")
    return [(int(bytes(payload)), attempt) for payload, attempt in found]


@by_strategy(*SEATED)
def test_a_signal_lets_handlers_finish_and_claims_no_more(database: Database, strategy: str) -> None:
    """PAINS 29"""
    prepare(database, strategy, 1, 2, 3)
    with child(SERVICE, database.url, strategy=strategy, workers=2) as service:
        service.wait_for("handling", 2)
        service.signal(signal.SIGTERM)
        service.wait_for("log: stopping")
        insert(database, 4)
        service.tell("end")
        service.wait_for("acknowledged")
        service.tell("end")
        assert service.exit_code() == 0
        assert sorted(service.said("handled")) == ["handled 1", "handled 2"]
        assert len(service.said("handling")) == 2
        assert service.lines[-1] == "over"
    assert rows(database) == [(3, 0), (4, 0)]


@by_strategy(*SEATED)
def test_rows_still_in_work_past_the_drain_timeout_are_given_back_and_the_process_leaves(
    database: Database, strategy: str
) -> None:
    """PAINS 29: with their attempts."""
    prepare(database, strategy, 1, 2, 3)
    with child(SERVICE, database.url, strategy=strategy, workers=2, drain_timeout=0.2) as service:
        service.wait_for("handling", 2)
        service.signal(signal.SIGTERM)
        assert service.exit_code(4) == 0
        assert len(service.said("released")) == 2
        assert [*service.said("handled"), *service.said("trouble")] == []
    assert rows(database) == [(1, 0), (2, 0), (3, 0)]


@by_strategy(*SEATED)
def test_a_second_signal_gives_the_rows_back_and_leaves_at_once(database: Database, strategy: str) -> None:
    """PAINS 29"""
    prepare(database, strategy, 1, 2, 3)
    with child(SERVICE, database.url, strategy=strategy, workers=2, drain_timeout=600) as service:
        service.wait_for("handling", 2)
        service.signal(signal.SIGTERM)
        service.wait_for("log: stopping")
        service.tell("end")
        service.wait_for("acknowledged")
        service.signal(signal.SIGTERM)
        assert service.exit_code(4) == 128 + signal.SIGTERM
        assert len(service.said("handling")) == 2
        assert len(service.said("released")) == 1
    [(_, first), (third, second)] = rows(database)
    assert (first, third, second) == (0, 3, 0)


@by_strategy(*SEATED)
def test_an_idle_service_leaves_at_once(database: Database, strategy: str) -> None:
    prepare(database, strategy)
    with child(SERVICE, database.url, strategy=strategy, workers=3, drain_timeout=600) as service:
        service.wait_for("looked")
        service.signal(signal.SIGTERM)
        assert service.exit_code(4) == 0
        assert service.lines[-1] == "over"
