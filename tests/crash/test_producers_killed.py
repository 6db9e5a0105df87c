"""Producers that are killed half way: all of their rows or none, and no lock that outlives them."""

import signal
import threading

from sqlqueue import Broker
from tests.consumer.helpers import HOUR, Inbox, Job, jobs, recorded
from tests.support.children import child
from tests.support.database import Database

DYING = "tests.crash.programs.dying"


class Late(threading.Thread):
    """A producer that comes while another holds the lock."""

    def __init__(self, broker: Broker) -> None:
        super().__init__()
        self._queue = broker.queue(Job)
        self.done = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._queue.enqueue(7)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self.done.set()


def test_a_producer_killed_half_way_through_many_rows_leaves_none_of_them_and_no_lock(database: Database) -> None:
    """SPEC 13"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            with child(DYING, database.url, act="many") as producer:
                producer.wait_for("half")
                producer.signal(signal.SIGKILL)
                assert producer.exit_code() == -signal.SIGKILL
            queue.enqueue(7)
            assert inbox.next() == 7
            recorder.wait_for("acknowledged")
        assert recorder.of("trouble") == []
    assert database.execute("SELECT count(*) FROM jobs") == [(0,)]
    assert inbox.empty


def test_a_writer_killed_with_sqlites_write_lock_holds_nobody_up_after_its_death(sqlite_database: Database) -> None:
    """PAINS 28: a producer waits for the lock meanwhile, and is told of nothing."""
    database, inbox = sqlite_database, Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            with child(DYING, database.url, act="locked") as writer:
                writer.wait_for("locked")
                with Broker(database.url) as other:
                    late = Late(other)
                    late.start()
                    assert not late.done.wait(0.3)  # it waits, and neither fails nor goes ahead
                    writer.signal(signal.SIGKILL)
                    assert late.done.wait(10)
                    late.join()
                assert writer.exit_code() == -signal.SIGKILL
            assert late.error is None
            assert inbox.next() == 7
            recorder.wait_for("acknowledged")
        assert recorder.of("trouble") == []
    assert database.execute("SELECT count(*) FROM jobs") == [(0,)]
    assert inbox.empty
