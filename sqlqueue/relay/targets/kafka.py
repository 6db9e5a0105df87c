"""Kafka, by confluent-kafka: `kafka://[user:password@]host[:port][,host[:port]…][/topic][?timeout=…&option=value]`.

The options are librdkafka's, by their names."""

import logging
import re
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from time import monotonic
from types import MappingProxyType
from typing import Any

import attrs
from confluent_kafka import KafkaError, KafkaException, Producer

from sqlqueue.consumer.polling import take
from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, parse, positive, shown
from sqlqueue.relay.targets.publishing import (
    CLOSED,
    ID_HEADER,
    ClientHolder,
    PublishResult,
    Refused,
    check_messages,
    destination_of,
)

logger = logging.getLogger("sqlqueue.relay")

PORT = 9092

TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")

#: What a publisher promises rests on these.
FIXED = {"enable.idempotence": "true", "acks": "all"}

#: Under other names, and what the publisher has settings of its own for.
TAKEN = {*FIXED, "request.required.acks", "bootstrap.servers", "metadata.broker.list", "message.timeout.ms"}
TAKEN |= {"delivery.timeout.ms", "transactional.id"}
TAKEN |= {"delivery.report.only.error", "on_delivery", "error_cb", "logger"}

#: Where nothing else is said: no wait for more messages, and the partitioner of Kafka's own Java clients.
DEFAULTS = {"linger.ms": "0", "partitioner": "murmur2_random"}

#: With a user: encrypted, for the password is sent.
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanisms": "PLAIN"}

#: Seconds after a message's time until librdkafka has looked at it: it does so once a second.
GRACE = 2.0

#: Seconds between two checks whether the thread is to end, and before a full queue is tried anew.
INTERVAL = 0.1

Report = tuple[int, KafkaError | None]


@attrs.define(eq=False, kw_only=True)
class KafkaPublisher:
    """Produces to topics by an idempotent producer with `acks=all`; a message's destination is its topic.

    `servers`: hosts and ports to begin with. `topic`: for messages without a destination. `username` and `password`:
    by SASL (PLAIN over TLS unless `options` say otherwise). `timeout`: seconds until a message that was not delivered
    is given up. `options`: librdkafka's, text by text.
    """

    servers: tuple[tuple[str, int], ...] = (("localhost", PORT),)
    topic: str | None = None
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    timeout: float = attrs.field(default=TIMEOUT, validator=positive)
    options: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # there are passwords among them
    _client: "ClientHolder[KafkaClient]" = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _check_options(self.options)
        taken = sorted(TAKEN & self.options.keys())
        if taken:
            raise DeclarationError(f"{self.name}: the option {taken[0]!r} is the publisher's own; leave it out")
        settings = self._settings()
        try:
            Producer({**settings, "bootstrap.servers": "", "log_level": 0})  # one without servers connects nowhere
        except KafkaException as error:
            raise DeclarationError(f"{self.name}: {self.without_secrets(error.args[0].str())}") from None
        except (TypeError, AttributeError, ValueError) as error:  # such as one that takes a function
            said = self.without_secrets(str(error))
            raise DeclarationError(f"{self.name}: an option of another kind than text: {said}; leave it out") from None
        self._client = ClientHolder(lambda: KafkaClient(self, settings))

    @classmethod
    def from_url(cls, url: str) -> "KafkaPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        address.check_scheme("Kafka", "kafka")
        return cls(
            servers=tuple((host, port or PORT) for host, port in address.hosts),
            topic=address.path or None,
            username=address.username,
            password=address.password,
            timeout=address.timeout(),
            options=MappingProxyType({name: value for name, value in address.options.items() if name != "timeout"}),
        )

    @property
    def name(self) -> str:
        return shown("kafka", self.servers) + (f"/{self.topic}" if self.topic else "")

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """All at once: the producer keeps the order of a partition, and so of a key, over its own tries.

        A message is confirmed when its delivery report says that all replicas in sync have it.
        """
        result = PublishResult(messages)
        check_messages(result, None, self._check)
        otherwise = f"no delivery report within {self.timeout:g} s"
        if result.open_indexes():
            try:
                client = self._client.get()
                client.produce(result)
            except Refused as error:
                otherwise = str(error)
            else:
                if client.failed:
                    self._client.drop(client)
        result.raise_unconfirmed(self.name, otherwise)

    def close(self) -> None:
        self._client.close()

    def topic_of(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.topic, "topic")

    def _check(self, message: OutgoingMessage) -> None:
        topic = self.topic_of(message)
        if not TOPIC.fullmatch(topic):
            raise Refused(
                f"{topic[:100]!r} is no topic's name: give letters, digits, dots, dashes and underscores, 249 at most"
            )

    def _settings(self) -> dict[str, str]:
        login = {} if self.username is None else {"sasl.username": self.username, "sasl.password": self.password or ""}
        return {
            **DEFAULTS,
            **(SASL if login else {}),
            **self.options,
            **login,
            **FIXED,
            "bootstrap.servers": ",".join(shown("", (server,)).removeprefix("://") for server in self.servers),
            "message.timeout.ms": str(max(1, round(self.timeout * 1000))),
        }

    def without_secrets(self, text: str) -> str:
        """A text of librdkafka's without our secrets."""
        secrets = [value for name, value in self.options.items() if "password" in name or "secret" in name]
        for secret in (self.password, *secrets):
            text = text.replace(secret, "***") if secret else text
        return text


def _check_options(options: Any) -> None:
    what = "KafkaPublisher(options=…)"
    if not isinstance(options, Mapping):
        raise DeclarationError(f"{what}: of type {type(options).__name__}; give a mapping of text by text")
    for name, value in options.items():
        if not isinstance(name, str):
            raise DeclarationError(f"{what}: an option's name is {name!r}; give text")
        if not isinstance(value, str):
            raise DeclarationError(f"{what}: {name!r} is of type {type(value).__name__}; give text")


@attrs.define(eq=False)
class KafkaClient:
    """A producer of librdkafka's, and the thread that fetches its delivery reports: by themselves they never come.

    `produce` and `close` are for any thread. `failed`: a fatal error made the producer useless.
    """

    _publisher: KafkaPublisher
    _settings: Mapping[str, Any]
    failed: bool = attrs.field(init=False, default=False)
    _trouble: str = attrs.field(init=False, default="")
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _producer: Producer = attrs.field(init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._producer = Producer({**self._settings, "error_cb": self._note_error, "logger": logger})
        # A daemon: a program that forgot to close its publisher ends all the same.
        self._thread = threading.Thread(target=self._run, name="sqlqueue-kafka", daemon=True)
        self._thread.start()

    def produce(self, result: PublishResult) -> None:
        """Hand all open messages to the producer, and wait for a report on each."""
        until = monotonic() + self._publisher.timeout + GRACE
        reports: SimpleQueue[Report] = SimpleQueue()
        waiting = 0
        for index in result.open_indexes():
            if not result.is_open(index):
                continue
            while not self._hand_over(result, index, reports) and monotonic() < until:
                waiting -= self._collect(result, reports, INTERVAL)
            waiting += not result.is_known(index)
        while waiting and monotonic() < until:
            waiting -= self._collect(result, reports, until - monotonic())

    def close(self) -> None:
        """What has no report yet is given up."""
        with self._lock:  # nothing is produced from here on
            self._closed = True
        self._producer.purge()
        self._producer.flush(GRACE)
        self._thread.join()

    def _hand_over(self, result: PublishResult, index: int, reports: "SimpleQueue[Report]") -> bool:
        """False where the producer's queue is full, which is its way to slow us down."""
        message = result.messages[index]
        headers = {**message.headers, **({} if message.id is None else {ID_HEADER: message.id})}
        try:
            with self._lock:  # whether it still gets in before the purge
                if self._closed:
                    raise Refused(CLOSED)
                self._producer.produce(
                    self._publisher.topic_of(message),
                    message.payload,
                    message.key,
                    headers=list(headers.items()),
                    on_delivery=partial(_report, reports, index),
                )
        except BufferError:
            return False
        except KafkaException as error:
            self.failed |= error.args[0].code() == KafkaError._FATAL
            result.refuse(index, self._reason(message, error.args[0]))
        return True

    def _collect(self, result: PublishResult, reports: "SimpleQueue[Report]", seconds: float) -> int:
        """Wait for a report; how many came."""
        try:
            index, error = take(reports, seconds)
        except Empty:
            return 0
        if error is None:
            result.confirm(index)
        else:
            result.refuse(index, self._publisher.without_secrets(self._reason(result.messages[index], error)))
        return 1

    def _reason(self, message: OutgoingMessage, error: KafkaError) -> str:
        text = f"{error.name()}: {error.str()}"
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            limit = self._settings.get("message.max.bytes", "1000000")
            return (
                f"{text}: {len(message.payload)} bytes of payload, message.max.bytes={limit}; send less, or raise that"
            )
        if error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            return CLOSED
        return f"{text} ({self._trouble})" if self._trouble and error.code() == KafkaError._MSG_TIMED_OUT else text

    def _note_error(self, error: KafkaError) -> None:
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
                self._note_error(error.args[0])


def _report(reports: "SimpleQueue[Report]", index: int, error: KafkaError | None, message: object) -> None:
    reports.put((index, error))


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to Kafka for `kafka://`."""
    return KafkaPublisher.from_url(url) if url.partition(":")[0] == "kafka" else None
