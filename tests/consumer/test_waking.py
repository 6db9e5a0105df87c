"""An idle consumer runs a row as soon as it is written or due, although its poll is an hour away."""

from datetime import datetime, timedelta, timezone
from queue import Empty
from time import monotonic

import pytest

from sqlqueue import Broker, Retry
from tests.consumer.helpers import HOUR, LIMIT, Gate, Inbox, Job, Mail, insert, jobs, recorded, wait_idle
from tests.support.database import Database


def test_a_row_enqueued_through_the_broker_is_handled_at_once(database: Database) -> None:
    """SUITE 118"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            queue.enqueue(1)
            assert inbox.next() == 1
            assert queue.enqueue_many([2, 3]) == 2
            assert inbox.some(2) == [2, 3]


def test_rows_enqueued_while_a_claim_runs_are_all_handled_before_the_poll(database: Database) -> None:
    """SUITE 119"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, _ = recorded(broker)
        with consumer:
            for number in range(100):
                queue.enqueue(number)
            assert inbox.some(100) == list(range(100))


def test_rows_enqueued_while_all_workers_are_busy_are_handled_when_one_is_free(database: Database) -> None:
    """SUITE 119"""
    gate = Gate()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        consumer, _ = recorded(broker)
        with consumer:
            queue.enqueue(1)
            assert gate.next() == 1
            queue.enqueue(2)
            gate.open()
            assert gate.next() == 2


def test_a_handler_that_enqueues_into_another_queue_wakes_it(database: Database) -> None:
    """SUITE 121"""
    replies = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        requests, mails = broker.queue(Job), broker.queue(Mail, group="replies")
        broker.create_tables()
        mails.handler(replies.handle)

        @requests.handler
        def forward(number: int) -> None:
            mails.enqueue(number + 1)

        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked", where=lambda event: event.queue == mails.name)
            requests.enqueue(1)
            assert replies.next() == 2


def test_a_row_written_in_the_callers_transaction_wakes_when_that_commits(database: Database) -> None:
    """SUITE 122"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR, notify=True) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        mine = database.connect()
        with consumer:
            wait_idle(recorder)
            mine.execute("BEGIN")
            queue.enqueue(1, connection=mine)
            with pytest.raises(Empty):
                inbox.next(0.2)
            mine.execute("COMMIT")
            assert inbox.next() == 1


def test_an_enqueue_that_is_rolled_back_runs_nothing(database: Database) -> None:
    """SUITE 122"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR, notify=True) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        mine = database.connect()
        with consumer:
            wait_idle(recorder)
            mine.execute("BEGIN")
            queue.enqueue(1, connection=mine)
            mine.execute("ROLLBACK")
            queue.enqueue(2)
            assert inbox.next() == 2
    assert inbox.empty


def test_a_delayed_row_runs_when_it_is_due(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            before = monotonic()
            queue.enqueue(2, at=datetime.now(timezone.utc) + timedelta(seconds=0.4))
            queue.enqueue(1, delay=0.2)
            queue.enqueue(3, delay=HOUR)
            assert inbox.some(2) == [1, 2]
            assert 0.4 <= monotonic() - before < 2


def test_a_row_delayed_by_another_program_before_the_start_runs_when_it_is_due(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        queue.enqueue(1, delay=0.5)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            assert inbox.empty
            assert inbox.next() == 1


def test_a_delayed_retry_runs_when_it_is_due(database: Database) -> None:
    attempts = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)

        @queue.handler
        def handle(number: int) -> Retry | None:
            attempts.handle(number)
            return Retry(0.2) if number == 1 else None

        consumer, _ = recorded(broker)
        with consumer:
            before = monotonic()
            queue.enqueue(1)
            assert attempts.some(3) == [1, 1, 1]
            assert 0.4 <= monotonic() - before < 3


def test_the_row_of_a_crashed_consumer_is_found_by_the_poll_after_its_lease(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=0.2) as broker:
        mails = broker.queue(Mail)
        broker.create_tables()
        mails.handler(inbox.handle)
        until = datetime.now(timezone.utc) + timedelta(seconds=0.5)
        mails.enqueue(Mail(group="a", locked_until=until, payload=b"1"))
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            assert inbox.next() == 1
            assert datetime.now(timezone.utc) >= until


def test_without_a_wake_up_the_poll_finds_what_others_wrote(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=0.1) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            insert(database, 1)
            assert inbox.next(LIMIT) == 1
