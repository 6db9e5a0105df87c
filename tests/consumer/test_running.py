"""The ways to run a consumer: until idle, beside other work, for ever, again; and which queues it takes."""

import threading
from datetime import datetime, timezone
from typing import Any

import pytest

from sqlqueue import Broker, Consumer, DeclarationError, Delivery, Retry, SQLQueueError, Stopped
from tests.consumer.helpers import HOUR, LIMIT, Gate, Inbox, Job, Mail, insert, jobs, recorded, running, wait_until
from tests.support.database import Database


def test_run_until_idle_works_off_what_is_due_and_returns_what_it_did(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)

        @queue.handler(workers=3)
        def handle(number: int) -> None:
            inbox.handle(number)
            if number == 1:
                queue.enqueue(2)  # due while it runs

        queue.enqueue_many([0, 1])
        queue.enqueue(9, delay=HOUR)
        assert Consumer(broker).run_until_idle(LIMIT) == Stopped(settled=3, given_back=0, abandoned=0)
        assert sorted(inbox.some(3)) == [0, 1, 2]
        assert Consumer(broker).run_until_idle(LIMIT) == Stopped(settled=0, given_back=0, abandoned=0)


def test_run_until_idle_runs_a_retry_that_is_due_at_once(database: Database) -> None:
    attempts = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)

        @queue.handler
        def handle(number: int, delivery: Delivery) -> Retry | None:
            attempts.handle(number)
            return Retry() if delivery.attempt != 3 else None

        queue.enqueue(1)
        Consumer(broker).run_until_idle(LIMIT)
        assert attempts.some(3) == [1, 1, 1]


def test_run_until_idle_gives_up_after_its_timeout_and_stops_gracefully(database: Database) -> None:
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer = Consumer(broker, drain_timeout=0.1)
        with pytest.raises(TimeoutError, match=r"still due or in work after 0.5 s; Stopped\(settled=0, given_back=1"):
            consumer.run_until_idle(0.5)
        assert consumer.health().state == "stopped"
        gate.open()


def test_run_until_idle_raises_what_a_handler_ended_the_run_with(database: Database) -> None:
    with Broker(database.url) as broker:
        queue = jobs(broker)

        @queue.handler
        def handle(_: int) -> None:
            raise SystemExit(3)

        queue.enqueue(1)
        with pytest.raises(SystemExit, match="3"):
            Consumer(broker).run_until_idle(LIMIT)


def test_a_consumer_runs_beside_other_work_and_tells_its_state(database: Database) -> None:
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        consumer, recorder = recorded(broker)
        assert (consumer.health().state, consumer.health().ok, consumer.health().queues) == ("new", False, ())
        assert consumer.stop() == Stopped(settled=0, given_back=0, abandoned=0)
        consumer.start()
        queue.enqueue(1)
        gate.next()
        health = consumer.health()
        assert (health.state, health.ok) == ("running", True)
        [one] = health.queues
        assert (one.name, one.workers, one.in_flight, one.settled, one.trouble, one.ok) == ("jobs", 2, 1, 0, None, True)
        gate.open()
        recorder.wait_for("acknowledged")
        assert (consumer.health().queues[0].in_flight, consumer.health().queues[0].settled) == (0, 1)
        assert consumer.stop() == Stopped(settled=1, given_back=0, abandoned=0)
        assert consumer.stop() == Stopped(settled=1, given_back=0, abandoned=0)
        assert (consumer.health().state, consumer.health().ok) == ("stopped", False)


def test_a_running_consumer_does_not_start_twice(database: Database) -> None:
    with Broker(database.url) as broker:
        jobs(broker).handler(Inbox().handle)
        consumer, _ = recorded(broker)
        with consumer, pytest.raises(SQLQueueError, match="running"):
            consumer.start()


def test_a_stopped_consumer_starts_again_and_counts_anew(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        for number in range(3):
            with consumer:
                queue.enqueue(number)
                assert inbox.next() == number
                recorder.wait_for("acknowledged", count=number + 1)
            assert consumer.stop() == Stopped(settled=1, given_back=0, abandoned=0)


def test_what_ended_one_run_does_not_end_the_next(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, _ = recorded(broker)
        with running(consumer) as run:
            consumer.request_stop()
            consumer.request_stop()
            assert run.ended()
        with running(consumer) as run:
            queue.enqueue(1)
            assert inbox.next() == 1
            assert not run.ended(0.2)


def test_a_start_that_failed_can_be_tried_again(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url) as broker:
        queue = broker.queue(Job)
        queue.handler(inbox.handle)
        consumer, _ = recorded(broker)
        with pytest.raises(SQLQueueError, match="no such table"):
            consumer.start()
        assert consumer.health().state == "stopped"
        broker.create_tables()
        with consumer:
            queue.enqueue(1)
            assert inbox.next() == 1


def test_a_stop_by_another_thread_ends_run_forever(database: Database) -> None:
    with Broker(database.url) as broker:
        jobs(broker).handler(Inbox().handle)
        consumer, _ = recorded(broker)
        with running(consumer) as run:
            assert consumer.stop() == Stopped(settled=0, given_back=0, abandoned=0)
            assert run.ended()
        assert run.error is None


def test_a_handler_may_ask_for_the_stop(database: Database) -> None:
    with Broker(database.url) as broker:
        queue = jobs(broker)
        consumer, recorder = recorded(broker)

        @queue.handler
        def handle(_: int) -> None:
            consumer.request_stop()

        with running(consumer) as run:
            queue.enqueue(1)
            assert run.ended()
        assert run.error is None
        assert len(recorder.of("acknowledged")) == 1


def test_stops_from_many_threads_are_one(database: Database) -> None:
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer, _ = recorded(broker)
        consumer.start()
        gate.next()
        told: list[Stopped] = []
        threads = [threading.Thread(target=lambda: told.append(consumer.stop())) for _ in range(4)]
        for thread in threads:
            thread.start()
        gate.open()
        for thread in threads:
            thread.join(LIMIT)
        assert told == [Stopped(settled=1, given_back=0, abandoned=0)] * 4


def names(broker: Broker, **options: Any) -> list[str]:
    consumer = Consumer(broker, **options)
    with consumer:
        return [queue.name for queue in consumer.health().queues]


def test_queues_says_which_queues_a_consumer_takes(database: Database) -> None:
    with Broker(database.url) as broker:
        work, a, b = broker.queue(Job), broker.queue(Mail, group="a"), broker.queue(Mail, group="b")
        broker.create_tables()
        for queue in (work, a, b):
            queue.handler(Inbox().handle)
        assert names(broker) == ["jobs", "mails[a]", "mails[b]"]
        assert names(broker, queues=["jobs"]) == ["jobs"]
        assert names(broker, queues=[a]) == ["mails[a]"]
        assert names(broker, queues=["mails[b]", work]) == ["jobs", "mails[b]"]
        assert names(broker, queues=["mails"]) == ["mails[a]", "mails[b]"]


def test_a_queue_that_cannot_be_consumed_is_refused_by_name(database: Database) -> None:
    with Broker(database.url) as broker, Broker(database.url) as other:
        queue = broker.queue(Job)
        broker.queue(Mail).handler(Inbox().handle)
        broker.create_tables()
        with pytest.raises(DeclarationError, match="job"):
            Consumer(broker, queues=["job"]).start()
        with pytest.raises(DeclarationError, match="jobs"):
            Consumer(broker, queues=[other.queue(Job)]).start()
        with pytest.raises(DeclarationError, match=r"no handler.*jobs|jobs.*no handler"):
            Consumer(broker, queues=[queue, "mails"]).start()
        with pytest.raises(DeclarationError, match="no handler"):
            Consumer(other).start()


def test_only_the_named_queues_are_worked(database: Database) -> None:
    inbox, never = Inbox(), Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        work, mails = broker.queue(Job), broker.queue(Mail, group="a")
        broker.create_tables()
        work.handler(inbox.handle)
        mails.handler(never.handle)
        mails.enqueue(0)
        with Consumer(broker, queues=[work]):
            work.enqueue(1)
            assert inbox.next() == 1
    assert never.empty
    assert database.execute("SELECT locked_until FROM mails") == [(None,)]


def test_the_number_of_workers_is_one_unless_set(database: Database) -> None:
    """SUITE 143"""
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue_many([1, 2])
        consumer, recorder = recorded(broker)
        with consumer:
            assert gate.next() == 1
            assert [one.workers for one in consumer.health().queues] == [1]
            insert(database, 3)  # whatever wakes it, it takes no second row
            assert len(recorder.of("claimed")) == 1
            gate.open()
            assert gate.some(2) == [2, 3]


def test_two_consumers_on_one_broker_share_the_rows(database: Database) -> None:
    gate = Gate()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        with Consumer(broker) as one, Consumer(broker) as two:
            queue.enqueue_many([1, 2])
            assert sorted(gate.some(2)) == [1, 2]  # side by side, though each has one worker
            wait_until(lambda: [each.health().queues[0].in_flight for each in (one, two)] == [1, 1])
            gate.open()
    assert database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_moment_that_has_passed_is_due_at_once(database: Database) -> None:
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        queue.enqueue(1, at=datetime(2001, 1, 1, tzinfo=timezone.utc))
        queue.enqueue(2, delay=0)
        Consumer(broker).run_until_idle(LIMIT)
        assert inbox.some(2) == [1, 2]
