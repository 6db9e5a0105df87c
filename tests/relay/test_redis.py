"""The publisher to Redis Streams, on the server of this machine."""

from collections.abc import Iterator
from time import monotonic
from typing import Any, ClassVar

import attrs
import pytest
import redis

from sqlqueue import DeclarationError
from sqlqueue.relay.targets.redis import Client, RedisPublisher, make_client, sqlqueue_publisher
from tests.relay.brokers.redis import RedisTarget, serving
from tests.relay.target import LIMIT, PASSWORD, Make, message, needs, payloads, unique
from tests.relay.target_contract import Arrivals, Cuts, Outages, Refusals, check_refused, fails, refusal
from tests.support.tcp_proxy import TCPProxy


@pytest.fixture
def target() -> Iterator[RedisTarget]:
    needs("redis")
    with serving() as made:
        yield made


class TestArrivals(Arrivals): ...


class TestRefusals(Refusals):
    def test_a_wrong_password_is_reported_without_it(self, make: Make) -> None:
        error = refusal(make(login=f"nobody:{PASSWORD}"), message("a"))
        assert "WRONGPASS" in str(error).upper() or "password" in str(error)
        assert PASSWORD not in f"{error} {error.unconfirmed}"

    def test_the_servers_word_is_reported_without_the_payload(self, target: RedisTarget, make: Make) -> None:
        error = refusal(make(), message("secret", destination=target.refused))
        assert error.unconfirmed[0].startswith(f"stream {target.refused!r}: ")
        assert "WRONGTYPE" in error.unconfirmed[0]
        assert "secret" not in str(error)

    def test_a_user_who_may_not_write_to_a_stream_loses_only_that(self, target: RedisTarget) -> None:
        """Redis gives up a whole transaction for it."""
        user = unique("user")
        target.client.acl_setuser(
            user, enabled=True, passwords=[f"+{PASSWORD}"], keys=[target.stream], commands=["+@all"]
        )
        publisher = target.make(target.url(login=f"{user}:{PASSWORD}"))
        try:
            batch = [message("a"), message("b", destination="another"), message("c")]
            assert list(refusal(publisher, *batch).unconfirmed) == [1]
        finally:
            publisher.close()
            target.client.acl_deluser(user)
        assert payloads(target.arrived()) == ["a", "c"]


class TestOutages(Outages):
    def module(self) -> str:
        return RedisPublisher.__module__


class TestCuts(Cuts):
    patience: ClassVar[dict[str, object]] = {"timeout": 1}

    def test_a_server_that_is_silent_is_waited_for_once_whatever_the_streams(
        self, target: RedisTarget, make: Make, cuts: TCPProxy
    ) -> None:
        batch = [message("a", destination=f"{target.stream}-{number}") for number in range(12)]
        cuts.hold()
        error = refusal(make(port=cuts.port, timeout=1), *batch)
        assert sorted(error.unconfirmed) == list(range(12))
        assert error.unconfirmed[0].startswith(f"stream '{target.stream}-0': TimeoutError: ")
        assert error.unconfirmed[11] == f"it was not sent: {error.unconfirmed[0]}"
        assert cuts.accepted == 1

    def test_one_that_falls_silent_among_the_streams_ends_the_publish(
        self, target: RedisTarget, make: Make, cuts: TCPProxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publisher = make(port=cuts.port, timeout=1)
        publisher.publish([message("a")])
        run = Client.run

        def running(client: Client, fill: Any, until: float) -> Any:
            replies = run(client, fill, until)
            cuts.swallow()
            return replies

        monkeypatch.setattr(Client, "run", running)
        batch = [message("b"), *(message("c", destination=f"{target.stream}-{number}") for number in range(9))]
        assert fails(publisher, *batch) == list(range(1, 10))
        assert cuts.accepted == 1

    def test_the_time_is_one_for_all_streams(
        self, target: RedisTarget, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publisher, limits = make(timeout=20), list[float]()
        now = [0.0]
        monkeypatch.setattr("sqlqueue.relay.targets.redis.monotonic", lambda: now[0])

        def running(client: Client, fill: Any, until: float) -> Any:
            limits.append(until)
            now[0] += 15.0
            return ["1-0"]

        monkeypatch.setattr(Client, "run", running)
        error = refusal(publisher, *(message("a", destination=stream) for stream in "abc"))
        assert limits == [20.0, 20.0]
        assert error.unconfirmed == {2: "it was not sent: the 20 s of the publish were over"}

    def test_an_answer_is_waited_for_as_long_as_is_left(self, target: RedisTarget, cuts: TCPProxy) -> None:
        client = make_client(None, host="127.0.0.1", port=cuts.port)
        fill = lambda pipeline: pipeline.ping()  # noqa: E731
        assert client.run(fill, monotonic() + LIMIT) == [True]
        cuts.swallow()
        began = monotonic()
        with pytest.raises(redis.TimeoutError):
            client.run(fill, began + 0.2)
        client.close()
        assert monotonic() - began < LIMIT / 2


def test_a_stream_is_trimmed_to_about_maxlen(target: RedisTarget, make: Make) -> None:
    publisher = make(maxlen=100)
    for _ in range(5):
        publisher.publish([message("x")] * 100)
    assert 100 <= target.client.xlen(target.stream) < 300


def test_the_name_has_neither_user_nor_password() -> None:
    publisher = RedisPublisher.from_url("rediss://shop:hush@redis.example/2?stream=orders")
    assert publisher.name == "rediss://redis.example:6379/2?stream=orders"
    assert "hush" not in repr(publisher)


def test_settings_stand_in_the_url() -> None:
    publisher = RedisPublisher.from_url(
        "rediss://shop:hu%40sh@[::1]:7000/2?stream=orders&maxlen=9&timeout=2.5&max_bytes=7"
    )
    assert attrs.asdict(publisher, filter=lambda field, _: not field.name.startswith("_")) == {
        "host": "::1",
        "port": 7000,
        "db": 2,
        "username": "shop",
        "password": "hu@sh",
        "tls": {"cafile": None, "certfile": None, "keyfile": None},
        "stream": "orders",
        "maxlen": 9,
        "max_bytes": 7,
        "timeout": 2.5,
    }


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hush@host/orders", "names the database 'orders', which is no number"),
        (
            "redis://:hush@host/?queue=orders",
            "has the option 'queue'; there are: cafile, certfile, keyfile, max_bytes, maxlen,",
        ),
        ("redis://:hush@host/?maxlen=many", "has maxlen='many', which is no whole number"),
        ("redis://:hush@host/?maxlen=0", "RedisPublisher(maxlen=0): give a whole number from 1"),
        ("redis://:hush@host/?timeout=0", "RedisPublisher(timeout=0.0): give seconds above 0"),
        ("redis://:hush@host/?timeout=soon", "has timeout='soon', which is no number"),
        ("redis://:hush@host/?stream=a&stream=b", "has the option 'stream' twice"),
        ("redis://:hush@host:99999/", "has a port that is not in 1 to 65535"),
        ("redis://:hush@a,b/", "names 2 hosts; this publisher takes one"),
        ("redis:", "'redis' begins no URL; write scheme://host"),
    ],
)
def test_a_url_that_cannot_be_one_is_refused_without_its_password(url: str, said: str) -> None:
    check_refused(sqlqueue_publisher, url, said)


def test_another_url_is_left_to_others() -> None:
    assert sqlqueue_publisher("nats://host/orders") is None
    with pytest.raises(DeclarationError):
        RedisPublisher.from_url("nats://host/orders")
