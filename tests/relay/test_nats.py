"""The publisher to NATS JetStream, on the server of this machine."""

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlqueue import DeclarationError
from sqlqueue.relay.targets.nats import NATSPublisher, sqlqueue_publisher
from tests.consumer.helpers import wait_until
from tests.relay.brokers.nats import PORT, NATSTarget, nats_server, serving
from tests.relay.target import LIMIT, PASSWORD, Make, message, needs, payloads
from tests.relay.target_contract import Arrivals, Cuts, Outages, Refusals, check_refused, publish_again, refusal


@pytest.fixture
def target() -> Iterator[NATSTarget]:
    needs("nats")
    with serving() as made:
        yield made


class TestArrivals(Arrivals):
    def test_one_with_an_id_that_came_before_is_stored_once(self, target: NATSTarget, make: Make) -> None:
        publisher = make()
        for _ in range(2):
            publisher.publish([message("a", id="17"), message("b", id="18")])
        assert sorted(payloads(target.arrived())) == ["a", "b"]

    def test_rows_of_two_tables_are_two_messages_whatever_their_ids(self, target: NATSTarget, make: Make) -> None:
        """Ids count the rows of each table, and a stream de-duplicates over all its subjects."""
        publisher = make(own=False)
        for subject, payload in (("orders", "a"), ("customers", "a"), ("customers", "b")):
            publisher.publish([message(payload, id="1", destination=f"{target.stream}.{subject}")])
        publisher.publish([message("b", id="1", headers={"table": "c"}, destination=f"{target.stream}.customers")])
        assert [(each.id, each.payload) for each in target.arrived()] == [
            ("1", each) for each in (b"a", b"a", b"b", b"b")
        ]

    def test_what_looks_like_one_that_was_confirmed_is_reported(
        self, target: NATSTarget, make: Make, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It may be another table's row after all, and then it is lost."""
        publisher = make()
        with caplog.at_level(logging.WARNING, "sqlqueue.relay"):
            publisher.publish([message("a", id="1")])
            assert caplog.messages == []
            for one in (publisher, make()):
                one.publish([message("a", id="1")])
        assert len(caplog.messages) == 2
        assert f"message 1 on subject '{target.stream}' was confirmed and not stored" in caplog.messages[0]
        assert payloads(target.arrived()) == ["a"]

    def test_a_destination_is_a_subject_of_the_stream(self, target: NATSTarget, make: Make) -> None:
        subject = f"{target.stream}.new"
        make(own=False).publish([message("a", destination=subject)])
        stored = target.run(target.client.jetstream().get_msg(target.stream, 1))
        assert stored.subject == subject


class TestRefusals(Refusals):
    said = "the stream refused it: message size exceeds maximum allowed"

    def limit(self, size: int) -> dict[str, object]:
        return {}  # the stream's

    def test_a_subject_that_no_stream_covers_is_reported(self, target: NATSTarget, make: Make) -> None:
        subject = target.refused
        said = refusal(make(), message("a", destination=subject)).unconfirmed[0]
        assert said == f"no stream covers the subject {subject!r}, or JetStream is off; create one"

    @pytest.mark.parametrize("settings", [{}, {"headers": {"a": "b"}}])
    def test_larger_than_the_server_takes_is_reported_with_its_limit(
        self, target: NATSTarget, make: Make, settings: dict[str, Any]
    ) -> None:
        """With its headers: the server would cut the connection."""
        payload = "x" * (target.client.max_payload + (0 if settings else 1))
        error = refusal(make(), message("a"), message(payload, **settings), message("c"))
        assert list(error.unconfirmed) == [1]
        assert f"more than the server's max_payload={target.client.max_payload}" in error.unconfirmed[1]
        assert sorted(payloads(target.arrived())) == ["a", "c"]

    @pytest.mark.parametrize("subject", ["a b", "a..b", ".a", "a.", "a.*", ">", "a.>.b", "a\r\nPING", "x" * 4_000])
    def test_what_is_no_subject_is_reported(self, make: Make, subject: str) -> None:
        said = refusal(make(), message("a", destination=subject)).unconfirmed[0]
        assert "is no subject to publish to" in said

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"headers": {"a": "b\r\nc: d"}}, "'a' has a line break"),
            ({"headers": {"a": " b"}}, "'a' has a line break, or white space at its ends"),
            ({"key": "k\n"}, "'key' has a line break"),
            ({"headers": {"a b": "c"}}, "the header name 'a b' is none for NATS"),
            ({"headers": {"": "c"}}, "the header name '' is none for NATS"),
        ],
    )
    def test_what_a_header_cannot_carry_is_reported(self, make: Make, settings: dict[str, Any], said: str) -> None:
        assert said in refusal(make(), message("a", **settings)).unconfirmed[0]

    def test_a_wrong_password_is_reported_without_it(self, tmp_path: Path) -> None:
        with nats_server(tmp_path, "--user", "shop", "--pass", "right") as port:
            for login in (f"shop:{PASSWORD}", PASSWORD):  # the other is a token
                publisher = NATSPublisher.from_url(f"nats://{login}@127.0.0.1:{port}/orders")
                error = refusal(publisher, message("a"))
                publisher.close()
                assert re.search("Authorization|reset", str(error))  # the server hangs up, at times before it is heard
                assert PASSWORD not in f"{error} {error.unconfirmed} {publisher!r}"
            with serving(port, user="shop", password="right") as target:
                right = target.make(target.url(login="shop:right"))
                right.publish([message("a")])
                right.close()
                assert payloads(target.arrived()) == ["a"]

    def test_a_server_without_jetstream_is_reported(self, tmp_path: Path) -> None:
        with nats_server(tmp_path, jetstream=False) as port:
            publisher = NATSPublisher.from_url(f"nats://127.0.0.1:{port}/orders")
            error = refusal(publisher, message("a"))
            publisher.close()
        assert "JetStream is off" in str(error)


class TestOutages(Outages):
    def module(self) -> str:
        return NATSPublisher.__module__

    def test_one_of_several_servers_is_enough(self, target: NATSTarget) -> None:
        publisher = target.make(f"nats://127.0.0.1:1,127.0.0.1:{PORT}/{target.stream}")
        publisher.publish([message("a")])
        publisher.close()
        assert payloads(target.arrived()) == ["a"]


class TestCuts(Cuts):
    def test_what_was_stored_and_not_confirmed_is_stored_once_without_a_word(
        self, target: NATSTarget, make: Make, cuts: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        publisher = make(port=cuts.port)
        publisher.publish([message("a")])
        cuts.swallow_answers()
        waiting = threading.Thread(target=lambda: refusal(publisher, message("b", id="7", key="k")))
        waiting.start()
        wait_until(lambda: payloads(target.arrived()) == ["a", "b"])
        cuts.cut()
        waiting.join(LIMIT)
        with caplog.at_level(logging.WARNING, "sqlqueue.relay"):
            publish_again(publisher, message("b", id="7", key="k"))
        assert caplog.messages == []
        assert payloads(target.arrived()) == ["a", "b"]

    def test_after_a_long_outage_a_new_client_takes_over(self, target: NATSTarget, make: Make, cuts: Any) -> None:
        publisher = make(port=cuts.port)
        publisher.publish([message("a")])
        cuts.refuse()
        for _ in range(2):
            refusal(publisher, message("b"))
        cuts.forward()
        publish_again(publisher, message("c"))
        assert payloads(target.arrived()) == ["a", "c"]


def test_the_name_has_neither_user_nor_password() -> None:
    publisher = NATSPublisher.from_url("nats://shop:hush@one,two:4333/orders.new?timeout=3")
    assert publisher.name == "nats://one:4222,two:4333/orders.new"
    assert "hush" not in repr(publisher)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://hush@host/?subject=orders", "has the option 'subject'; there are: cafile, certfile, keyfile, timeout"),
        ("nats://hush@host/?timeout=-1", "NATSPublisher(timeout=-1.0): give seconds above 0"),
        ("nats://hush@host:0/", "has a port that is not in 1 to 65535"),
    ],
)
def test_a_url_that_cannot_be_one_is_refused_without_its_password(url: str, said: str) -> None:
    check_refused(sqlqueue_publisher, url, said)


def test_another_url_is_left_to_others() -> None:
    assert sqlqueue_publisher("redis://host/0") is None
    with pytest.raises(DeclarationError):
        NATSPublisher.from_url("redis://host/0")
    with pytest.raises(DeclarationError):
        NATSPublisher(servers=())
