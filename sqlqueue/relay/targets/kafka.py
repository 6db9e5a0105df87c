"""Kafka, by confluent-kafka: `kafka://[user:password@]host[:port][,host[:port]…][/topic][?timeout=…&option=value]`.

The options are librdkafka's, by their names."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from confluent_kafka import KafkaException, Producer

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, parse, shown
from sqlqueue.relay.targets.checks import positive
from sqlqueue.relay.targets.holding import Holding
from sqlqueue.relay.targets.kafka_client import KafkaClient
from sqlqueue.relay.targets.messages import check_all, destination_of
from sqlqueue.relay.targets.tally import Refused, Tally

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
    _client: Holding[KafkaClient] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        _check_options(self.options)
        taken = sorted(TAKEN & self.options.keys())
        if taken:
            raise DeclarationError(f"{self.name}: the option {taken[0]!r} is the publisher's own; leave it out")
        settings = self._settings()
        try:
            Producer({**settings, "bootstrap.servers": "", "log_level": 0})  # one without servers connects nowhere
        except KafkaException as error:
            raise DeclarationError(f"{self.name}: {self._shown(error.args[0].str())}") from None
        except (TypeError, AttributeError, ValueError) as error:  # such as one that takes a function
            said = self._shown(str(error))
            raise DeclarationError(f"{self.name}: an option of another kind than text: {said}; leave it out") from None
        self._client = Holding(lambda: KafkaClient(settings))

    @classmethod
    def from_url(cls, url: str) -> "KafkaPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        if address.scheme != "kafka":
            raise DeclarationError(f"the URL {address} is not one of Kafka: it begins with kafka://")
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
        tally = Tally(messages)
        check_all(tally, None, self._check)
        otherwise = f"no delivery report within {self.timeout:g} s"
        if tally.open_places():
            try:
                client = self._client.get()
                client.produce(tally, self._topic, self.timeout, self._shown)
            except Refused as error:
                otherwise = str(error)
            else:
                if client.failed:
                    self._client.drop(client)
        tally.close(self.name, otherwise)

    def close(self) -> None:
        self._client.close()

    def _topic(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.topic, "topic")

    def _check(self, message: OutgoingMessage) -> None:
        topic = self._topic(message)
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

    def _shown(self, text: str) -> str:
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


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to Kafka for `kafka://`."""
    return KafkaPublisher.from_url(url) if url.partition(":")[0] == "kafka" else None
