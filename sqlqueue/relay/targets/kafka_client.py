"""A producer of librdkafka's, and the thread that fetches its delivery reports: by themselves they never come."""

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import attrs
from confluent_kafka import KafkaError, KafkaException, Producer

from sqlqueue.consumer.polling import take
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.holding import CLOSED
from sqlqueue.relay.targets.messages import ID
from sqlqueue.relay.targets.tally import Refused, Tally

logger = logging.getLogger("sqlqueue.relay")

#: Seconds after a message's time until librdkafka has looked at it: it does so once a second.
GRACE = 2.0

#: Seconds between two looks whether the thread is to end, and before a full queue is tried again.
INTERVAL = 0.1

Report = tuple[int, KafkaError | None]


@attrs.define(eq=False)
class KafkaClient:
    """`produce` and `close` are for any thread. `failed`: a fatal error made the producer useless."""

    _settings: Mapping[str, Any]
    failed: bool = attrs.field(init=False, default=False)
    _trouble: str = attrs.field(init=False, default="")
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _producer: Producer = attrs.field(init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._producer = Producer({**self._settings, "error_cb": self._told, "logger": logger})
        # A daemon: a program that forgot to close its publisher ends all the same.
        self._thread = threading.Thread(target=self._run, name="sqlqueue-kafka", daemon=True)
        self._thread.start()

    def produce(
        self, tally: Tally, topic: Callable[[OutgoingMessage], str], timeout: float, shown: Callable[[str], str]
    ) -> None:
        """Hand all open messages to the producer, and wait for a report on each. `shown` takes secrets out of texts."""
        until = monotonic() + timeout + GRACE
        reports: SimpleQueue[Report] = SimpleQueue()
        waiting = 0
        for place in tally.open_places():
            message = tally.messages[place]
            if tally.blocks(message):
                continue
            while not self._handed_over(tally, place, topic(message), reports) and monotonic() < until:
                waiting -= self._collect(tally, reports, INTERVAL, shown)
            waiting += not tally.knows(place)
        while waiting and monotonic() < until:
            waiting -= self._collect(tally, reports, until - monotonic(), shown)

    def close(self) -> None:
        """What has no report yet is given up."""
        with self._lock:  # nothing is produced from here on
            self._closed = True
        self._producer.purge()
        self._producer.flush(GRACE)
        self._thread.join()

    def _handed_over(self, tally: Tally, place: int, topic: str, reports: "SimpleQueue[Report]") -> bool:
        """False where the producer's queue is full, which is its way to slow us down."""
        message = tally.messages[place]
        try:
            with self._lock:  # whether it still gets in before the purge
                if self._closed:
                    raise Refused(CLOSED)
                self._producer.produce(
                    topic,
                    message.payload,
                    message.key,
                    headers=_headers(message),
                    on_delivery=partial(_report, reports, place),
                )
        except BufferError:
            return False
        except KafkaException as error:
            self.failed |= error.args[0].code() == KafkaError._FATAL
            tally.refuse(place, self._why(message, error.args[0]))
        return True

    def _collect(
        self, tally: Tally, reports: "SimpleQueue[Report]", seconds: float, shown: Callable[[str], str]
    ) -> int:
        """Wait for a report; how many came."""
        try:
            place, error = take(reports, seconds)
        except Empty:
            return 0
        if error is None:
            tally.confirm(place)
        else:
            tally.refuse(place, shown(self._why(tally.messages[place], error)))
        return 1

    def _why(self, message: OutgoingMessage, error: KafkaError) -> str:
        text = f"{error.name()}: {error.str()}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            limit = self._settings.get("message.max.bytes", "1000000")
            return (
                f"{text}: {len(message.payload)} bytes of payload, message.max.bytes={limit}; send less, or raise that"
            )
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return CLOSED
        return f"{text} ({self._trouble})" if self._trouble and error.code() == KafkaError._MSG_TIMED_OUT else text

    def _told(self, error: KafkaError) -> None:
        """The client's own troubles: it goes on, but says why messages are late."""
        if error.fatal():
            self.failed = True
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # which says less than what came before it
            self._trouble = f"{error.name()}: {error.str()}"

    def _run(self) -> None:
        while not self._closed:
            try:
                self._producer.poll(INTERVAL)
            except KafkaException as error:  # a fatal one is raised here; the reports still come
                self._told(error.args[0])


def _report(reports: "SimpleQueue[Report]", place: int, error: KafkaError | None, message: object) -> None:
    reports.put((place, error))


def _headers(message: OutgoingMessage) -> list[tuple[str, str | bytes | None]]:
    given = {**message.headers, **({} if message.id is None else {ID: message.id})}
    return list(given.items())
