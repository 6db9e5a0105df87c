"""A service that is killed between the record of a message and its send, or between a message and its reply."""

import signal
from collections.abc import Sequence

from sqlqueue import Broker, Queue
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher
from sqlqueue.testing import drain
from sqlqueue.testing.contract.harness import created
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import Sent, arrive, message, processed, tracked
from tests.support.children import child
from tests.support.database import Database


class Arriving(Sent):
    """What is sent arrives in the queue."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        super().publish(messages)
        arrive(self._queue, *messages)


def test_what_was_recorded_and_never_sent_is_sent_at_the_next_start_and_nothing_is_handled_twice(
    database: Database,
) -> None:
    with Broker(database.url) as broker:
        tracking, queue = tracked(broker), created(broker, KeptJob)
        with child("tests.crash.programs.publisher", database.url, sent=3) as service:
            service.wait_for("recorded")
            service.signal(signal.SIGKILL)
            assert service.exit_code() == -signal.SIGKILL
        handled: list[str] = []
        queue.handler(tracking.consumer(handled.append))
        arriving = Arriving(queue)
        assert tracking.republish(arriving) == 4
        drain(broker)
        assert sorted(handled) == ["0", "1", "2", "3"]
        assert processed(database) == [1, 2, 3, 4]
        assert tracking.republish(arriving) == 0


def test_a_reply_that_was_never_sent_is_made_by_who_takes_over(database: Database) -> None:
    with Broker(database.url) as broker:
        tracking, queue = tracked(broker), created(broker, KeptJob)
        tracking.publisher(Arriving(queue)).publish([message("x")])
        with child("tests.crash.programs.replier", database.url) as service:
            service.wait_for("replying")
            service.signal(signal.SIGKILL)
            assert service.exit_code() == -signal.SIGKILL
        assert processed(database) == []
        bus = MemoryPublisher("bus")
        queue.handler(reply_to=bus)(tracking.consumer(lambda text: text))
        database.execute("UPDATE kept_jobs SET locked_until = NULL")  # its lease has run out
        drain(broker)
        assert [one.payload for one in bus.messages] == [b'"x"']
        assert processed(database) == [1]
