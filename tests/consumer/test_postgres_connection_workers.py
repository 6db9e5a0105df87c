"""Deliveries that hold a session of the server's: what it sees of them, and what becomes of them when it ends one."""

import threading
from contextlib import ExitStack
from typing import Any

import attrs
import pytest
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, Consumer, Delivery, Queue, Retry
from sqlqueue.spec import TableSpec
from sqlqueue.testing import Recorder, drain
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, ROW_LOCK, held_by
from sqlqueue.testing.contract.tables import CountedJob, KeptJob
from tests.consumer.helpers import HOUR, LIMIT, recorded, wait_until
from tests.consumer.postgres_helpers import terminate
from tests.support.database import Database
from tests.support.postgres import url_of

BOTH = pytest.mark.parametrize("strategy", [ROW_LOCK, ADVISORY_LOCK])

IN_TRANSACTION = """
SELECT pid FROM pg_stat_activity
WHERE application_name = ? AND state = 'idle in transaction'
"""

WITH_LOCK = """
SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE application_name = ? AND locktype = 'advisory'
"""

# As another program's audit would: the level that each update of a row ran at.
AUDIT = """
CREATE TABLE levels (level text);
CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO levels VALUES (current_setting('transaction_isolation'));
    RETURN NEW;
END $$;
CREATE TRIGGER audit BEFORE UPDATE ON kept_jobs FOR EACH ROW EXECUTE FUNCTION audit()
"""

# A finished row of this text is refused, as often as the sequence says; what a sequence counts is never rolled back.
REFUSE = """
CREATE SEQUENCE refusals;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.payload = '"refused"' AND nextval('refusals') <= {times} THEN
        RAISE EXCEPTION 'no end for this row' USING ERRCODE = '{state}';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER refuse BEFORE DELETE ON counted_jobs FOR EACH ROW EXECUTE FUNCTION refuse()
"""


def holders(database: Database, strategy: str) -> list[int]:
    """The sessions that hold a row."""
    look = IN_TRANSACTION if strategy == ROW_LOCK else WITH_LOCK
    return [pid for (pid,) in database.execute(look, database.name)]


def queue_of(broker: Broker, spec: TableSpec) -> Queue:
    queue = broker.queue(spec)
    broker.create_tables()
    return queue


@attrs.define
class Held:
    """A handler that waits at its row until the test lets it go on."""

    go_on: threading.Event = attrs.field(factory=threading.Event)
    attempts: list[int | None] = attrs.field(factory=list)

    def handle(self, message: Any, delivery: Delivery) -> None:
        self.attempts.append(delivery.attempt)
        assert self.go_on.wait(LIMIT)


def test_a_row_lock_is_one_transaction_and_an_advisory_lock_is_one_lock_and_no_transaction(
    postgres_database: Database,
) -> None:
    """SUITE 37"""
    database, held = postgres_database, Held()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(ADVISORY_LOCK, CountedJob))
        queue.handler(held.handle)
        queue.enqueue("x")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("started")
            assert (len(holders(database, ADVISORY_LOCK)), holders(database, ROW_LOCK)) == (1, [])
            held.go_on.set()
            recorder.wait_for("acknowledged")
            wait_until(lambda: not holders(database, ADVISORY_LOCK))


@BOTH
def test_a_session_that_ends_in_work_frees_its_row_at_once_and_the_late_outcome_changes_nothing(
    postgres_database: Database, strategy: str
) -> None:
    """SUITE 32, SUITE 33, PAINS 1, PAINS 25: what a row lock counts is rolled back, an advisory lock's stays."""
    database, held, attempts = postgres_database, Held(), list[Any]()
    spec = held_by(strategy, CountedJob)
    with Broker(database.url, poll_interval=HOUR) as broker, Broker(database.url, poll_interval=HOUR) as other:
        queue, elsewhere = queue_of(broker, spec), queue_of(other, spec)
        queue.handler(held.handle)
        elsewhere.handler(lambda message, delivery: attempts.append(delivery.attempt))
        queue.enqueue("x")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("started")
            [pid] = holders(database, strategy)
            terminate(database, pid)
            assert drain(other).settled == 1
            assert attempts == [1 if strategy == ROW_LOCK else 2]
            held.go_on.set()
            recorder.wait_for("lease_lost")
            recorder.wait_for("recovered")
            queue.enqueue("y")
            recorder.wait_for("acknowledged")
        assert recorder.of("retried", "gone") == []
        assert database.execute("SELECT count(*) FROM counted_jobs") == [(0,)]


@BOTH
def test_a_row_whose_session_ended_comes_back_to_its_own_consumer(postgres_database: Database, strategy: str) -> None:
    """PAINS 1"""
    database, held = postgres_database, Held()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        queue.handler(held.handle)
        queue.enqueue("x")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("started")
            terminate(database, holders(database, strategy)[0])
            held.go_on.set()
            recorder.wait_for("acknowledged")
        assert held.attempts == [1, 1 if strategy == ROW_LOCK else 2]


@BOTH
def test_an_ack_that_is_refused_is_a_failure_of_its_row_reported_once_and_the_others_go_on(
    postgres_database: Database, strategy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SUITE 36: rolled back, settled by its policy in a fresh transaction, and no hot loop."""
    database, attempts = postgres_database, list[int | None]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        database.script(REFUSE.format(times=1, state="P0001"))

        @queue.handler(retry=0.3)
        def work(message: str, delivery: Delivery) -> None:
            if message == "refused":
                attempts.append(delivery.attempt)

        for message in ("a", "refused", "b", "c"):
            queue.enqueue(message)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=3)
            recorder.wait_for("retried")
            recorder.wait_for("acknowledged", count=4)
        assert attempts == [1, 2]
        assert recorder.of("lease_lost", "trouble") == []
    told = [record for record in caplog.records if "could not be" in record.getMessage()]
    assert ["no end for this row" in str(record.exc_info) for record in told] == [True]


def test_a_row_whose_ack_is_refused_may_be_taken_by_another_worker_and_holds_nobody_up(
    postgres_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the refusal, which frees it, and the lock that settles it otherwise: at least once."""
    database, attempts = postgres_database, list[int | None]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(ROW_LOCK, CountedJob))
        database.script(REFUSE.format(times=9, state="P0001"))

        @queue.handler(workers=4, retry=0.01)
        def work(message: str, delivery: Delivery) -> None:
            if message == "refused":
                attempts.append(delivery.attempt)

        for message in ("a", "refused", "b", "c"):
            queue.enqueue(message)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=4)
        assert len(attempts) == 10
        assert len(recorder.of("retried", "lease_lost")) == 9
        assert recorder.of("trouble") == []
    assert sum("could not be" in message for message in caplog.messages) == 9


@BOTH
def test_an_ack_that_always_fails_ends_at_the_cap(postgres_database: Database, strategy: str) -> None:
    """SUITE 36"""
    database, attempts = postgres_database, list[int | None]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, KeptJob))
        database.script(REFUSE.format(times=99, state="P0001").replace("DELETE ON counted_jobs", "UPDATE ON kept_jobs"))
        database.script(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF NEW.done_at IS NOT NULL THEN RAISE 'no end for this row'; END IF; RETURN NEW; END $$"
        )

        @queue.handler(max_attempts=2, retry=0.05)
        def work(message: str, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)

        queue.enqueue("x")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("parked")
        assert attempts == [1, 2]
        [(error,)] = database.execute("SELECT error FROM kept_jobs")
        assert "no end for this row" in error


@BOTH
@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_a_settlement_that_may_succeed_again_is_tried_again_and_reaches_no_handler(
    postgres_database: Database, strategy: str, state: str
) -> None:
    """SUITE 161"""
    database, held = postgres_database, Held()
    held.go_on.set()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(strategy, CountedJob))
        database.script(REFUSE.format(times=2, state=state))
        queue.handler(held.handle)
        queue.enqueue("refused")
        drain(broker, recorder := Recorder())
        assert held.attempts == [1]
        assert [event.kind for event in recorder.of("acknowledged", "retried", "lease_lost")] == ["acknowledged"]


@pytest.mark.parametrize("users", [False, True], ids=["own pool", "user's pool"])
@pytest.mark.parametrize("declared", [None, "repeatable read", "SERIALIZABLE"])
def test_the_transaction_of_a_claim_runs_at_the_declared_level_else_at_read_committed(
    postgres_database: Database, declared: str | None, users: bool
) -> None:
    """SUITE 156, SUITE 157: whatever the server's default is."""
    database = postgres_database
    options = f"-csearch_path={database.name} -cdefault_transaction_isolation=serializable"
    url = url_of(database.url, options=options)
    with ExitStack() as stack:
        source = stack.enter_context(ConnectionPool(url, max_size=10, open=True)) if users else url
        broker = stack.enter_context(Broker(source, poll_interval=HOUR))
        queue = queue_of(broker, attrs.evolve(held_by(ROW_LOCK, KeptJob), isolation=declared))
        database.script(AUDIT)
        queue.handler(lambda message, delivery: Retry() if delivery.attempt == 1 else None)
        queue.enqueue_many(range(6))
        assert drain(broker).settled == 12
    levels = database.execute("SELECT level, count(*) FROM levels GROUP BY level")
    assert levels == [((declared or "read committed").lower(), 12)]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_consumers_that_collide_above_read_committed_finish_every_row_and_reach_no_handler(
    postgres_database: Database, level: str
) -> None:
    """SUITE 156, SUITE 161: a row that the other one takes after a failed commit is lost, and handled again."""
    database, handled, lock = postgres_database, list[tuple[int, Any]](), threading.Lock()
    spec = attrs.evolve(held_by(ROW_LOCK, CountedJob), isolation=level)
    brokers = [Broker(database.url, poll_interval=0.05, pool_size=5) for _ in range(2)]
    recorder = Recorder()
    try:
        for broker in brokers:

            def work(message: int, delivery: Delivery) -> Retry | None:
                with lock:
                    handled.append((message, delivery.attempt))
                return Retry() if delivery.attempt == 1 else None

            queue_of(broker, spec).handler(workers=4)(work)
        brokers[0].queue(spec).enqueue_many(range(100))
        with Consumer(brokers[0], observers=[recorder]), Consumer(brokers[1], observers=[recorder]):
            recorder.wait_for("acknowledged", count=100)
    finally:
        for broker in brokers:
            broker.close()
    assert set(handled) == {(number, attempt) for number in range(100) for attempt in (1, 2)}
    assert len(handled) == 200 + len(recorder.of("lease_lost"))
    assert database.execute("SELECT count(*) FROM counted_jobs") == [(0,)]


def test_after_many_rows_no_advisory_lock_is_left(postgres_database: Database) -> None:
    """PAINS 26"""
    database, handled = postgres_database, list[int]()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = queue_of(broker, held_by(ADVISORY_LOCK, CountedJob))
        queue.handler(workers=4)(handled.append)
        queue.enqueue_many(range(2000))
        drain(broker, timeout=30)
        assert sorted(handled) == list(range(2000))
        assert database.execute(WITH_LOCK, database.name) == []
