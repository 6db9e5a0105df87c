"""Batches that one session of the server's holds: what it sees of them, and what becomes of them where it fails."""

import threading
from typing import Any

import pytest

from sqlqueue import Broker, Consumer, Delivery
from sqlqueue.testing import Recorder, drain
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, held_by
from sqlqueue.testing.contract.tables import CountedJob, KeyedJob
from tests.consumer.helpers import HOUR, LIMIT, recorded, wait_until
from tests.consumer.postgres_helpers import terminate
from tests.consumer.test_postgres_connection_workers import REFUSE, holders, queue_of
from tests.support.database import Database

BOTH = pytest.mark.parametrize("strategy", [ROW_LOCK, ADVISORY_LOCK])
ALL = pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])


@BOTH
def test_one_session_holds_a_batch_and_nothing_is_held_after_it(postgres_database: Database, strategy: str) -> None:
    """SPEC 9, SUITE 37"""
    database, seen = postgres_database, list[Any]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))

        @queue.handler(batch=5)
        def work(messages: list[int]) -> None:
            pids = holders(database, strategy)
            seen.append((len(pids), len(set(pids))))

        queue.enqueue_many(range(10))
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=10)
            wait_until(lambda: not holders(database, strategy))
        assert seen == [(5 if strategy == ADVISORY_LOCK else 1, 1)] * 2


@BOTH
def test_a_session_that_ends_in_work_frees_all_rows_of_its_batch_and_the_late_outcome_changes_nothing(
    postgres_database: Database, strategy: str
) -> None:
    """SUITE 76, PAINS 1"""
    database, go_on, handled = postgres_database, threading.Event(), list[Any]()
    spec = held_by(strategy, CountedJob)
    with Broker(database.url, poll_interval=HOUR) as broker, Broker(database.url, poll_interval=HOUR) as other:
        queue, elsewhere = queue_of(broker, spec), queue_of(other, spec)
        elsewhere.handler(batch=3)(handled.append)

        @queue.handler(batch=3)
        def work(messages: list[int]) -> None:
            assert go_on.wait(LIMIT)

        queue.enqueue_many(range(3))
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("started", count=3)
            terminate(database, holders(database, strategy)[0])
            assert drain(other).settled == 3
            assert handled == [[0, 1, 2]]
            go_on.set()
            recorder.wait_for("lease_lost", count=3)
            recorder.wait_for("recovered")
            queue.enqueue_many(range(3))
            recorder.wait_for("acknowledged", count=3)
        assert recorder.of("retried", "gone") == []


@BOTH
@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_batch_whose_settlement_may_succeed_again_is_tried_again_and_reaches_no_handler(
    postgres_database: Database, strategy: str, state: str
) -> None:
    """SUITE 161"""
    database, handled = postgres_database, list[Any]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        database.script(REFUSE.format(times=3, state=state))
        queue.handler(batch=3)(handled.append)
        queue.enqueue_many(["before", "refused", "behind"])
        drain(broker, recorder := Recorder())
        assert handled == [["before", "refused", "behind"]]
        assert len(recorder.of("acknowledged")) == 3
        assert recorder.of("retried", "lease_lost", "trouble") == []


@BOTH
def test_a_row_that_nothing_can_settle_returns_by_itself_and_keeps_none_of_its_batch(
    postgres_database: Database, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SUITE 71, SUITE 72: neither its ack nor its retry goes through, the first time."""
    database, attempts = postgres_database, list[Any]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        database.script(REFUSE.format(times=3, state="P0001").replace("BEFORE DELETE", "BEFORE DELETE OR UPDATE"))
        if strategy == ADVISORY_LOCK:  # whose claim counts the attempt
            database.script(
                "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
                "IF OLD.payload = '\"refused\"' AND (TG_OP = 'DELETE' OR NEW.due_at IS NOT NULL) "
                "AND nextval('refusals') <= 3 THEN RAISE 'no end for this row'; END IF; "
                "IF TG_OP = 'DELETE' THEN RETURN OLD; END IF; RETURN NEW; END $$"
            )

        @queue.handler(batch=3, retry=0.01)
        def work(messages: list[str], deliveries: list[Delivery]) -> None:
            attempts.extend(
                delivery.attempt for message, delivery in zip(messages, deliveries, strict=True) if message == "refused"
            )

        queue.enqueue_many(["before", "refused", "behind"])
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=3)
            wait_until(lambda: not holders(database, strategy))
        assert attempts == [1, 1 if strategy == ROW_LOCK else 2]
        assert len(recorder.of("lease_lost")) == 1


@BOTH
def test_a_row_that_somebody_has_locked_is_left_out_of_a_batch_and_leaves_no_lock(
    postgres_database: Database, strategy: str
) -> None:
    """SUITE 4"""
    database, handled = postgres_database, list[Any]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        queue.handler(batch=4)(handled.append)
        queue.enqueue_many(["before", "locked", "behind"])
        person = database.connect()
        person.execute("BEGIN")
        person.execute("SELECT id FROM counted_jobs WHERE payload = '\"locked\"' FOR UPDATE").fetchall()
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=2)
            recorder.wait_for("looked")
            wait_until(lambda: not holders(database, ADVISORY_LOCK))
            person.execute("ROLLBACK")
            recorder.wait_for("acknowledged", count=3, timeout=3)
        assert handled == [["before", "behind"], ["locked"]]


@ALL
def test_consumers_that_claim_batches_side_by_side_handle_each_row_once_and_leave_no_lock(
    postgres_database: Database, strategy: str
) -> None:
    """SUITE 1; by advisory lock the rows of a key one at a time."""
    database, lock = postgres_database, threading.Lock()
    handled: list[int] = []
    running: set[Any] = set()
    together: list[Any] = []

    def work(messages: list[int], deliveries: list[Delivery]) -> None:
        keys = {delivery.key for delivery in deliveries}
        with lock:  # one line of the log
            together.extend(running & keys if strategy == ADVISORY_LOCK else ())
            together.extend(() if strategy != ADVISORY_LOCK or len(keys) == len(deliveries) else keys)
            running.update(keys)
            handled.extend(messages)
        with lock:
            running.difference_update(keys)

    brokers = [Broker(database.url, poll_interval=0.05) for _ in range(2)]
    for broker in brokers:
        spec = held_by(strategy, KeyedJob, "accounts-{account}")
        queue_of(broker, spec).handler(workers=3, batch=7)(work)
    with brokers[0], brokers[1]:
        (queue,) = brokers[0].queues
        for number in range(400):
            queue.enqueue(number, key=str(number % 23))
        recorder = Recorder()
        one, other = (Consumer(broker, observers=[recorder]) for broker in brokers)
        with one, other:
            recorder.wait_for("acknowledged", count=400)
        assert sorted(handled) == list(range(400))
        assert together == []
        assert holders(database, ADVISORY_LOCK) == []
