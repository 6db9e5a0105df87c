"""What every publisher to a broker must do, on the broker itself: subclasses bring the fixture `target`."""

import threading
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from sqlqueue import DeclarationError, PublishError
from sqlqueue.publisher import OutgoingMessage, Publisher
from tests.relay.target import CLOSED_PORT, LIMIT, PASSWORD, Arrived, Make, Target, at_once, message, payloads
from tests.support.children import child
from tests.support.tcp_proxy import TCPProxy


def check_refused(sqlqueue_publisher: Callable[[str], Any], url: str, said: str) -> None:
    """A URL whose password is "hush" cannot be one, which is said without that."""
    with pytest.raises(DeclarationError) as caught:
        sqlqueue_publisher(url)
    assert said in str(caught.value)
    assert "hush" not in str(caught.value)


def publish_again(publisher: Publisher, *messages: OutgoingMessage) -> None:
    """As a relay does: what was not confirmed is published once more."""
    try:
        publisher.publish(messages)
    except PublishError:
        publisher.publish(messages)


def refusal(publisher: Publisher, *messages: OutgoingMessage) -> PublishError:
    with pytest.raises(PublishError) as caught:
        publisher.publish(messages)
    assert publisher.name in str(caught.value)
    return caught.value


def fails(publisher: Publisher, *messages: OutgoingMessage) -> list[int]:
    """Those that were not confirmed."""
    return sorted(refusal(publisher, *messages).unconfirmed)


class Arrivals:
    """What arrives, and in which order."""

    def test_a_message_arrives_as_it_was_sent(self, target: Target, make: Make) -> None:
        headers = {"type": "paid", "city": "Köln"}
        make().publish([OutgoingMessage(payload=bytes(range(256)), key="k-ü", headers=headers, id="17")])
        assert target.arrived() == [Arrived(payload=bytes(range(256)), key="k-ü", headers=headers, id="17")]

    def test_a_bare_message_arrives_bare(self, target: Target, make: Make) -> None:
        make().publish([OutgoingMessage(payload=b"")])
        assert target.arrived() == [Arrived(payload=b"")]

    def test_nothing_to_publish_is_published_without_a_broker(self, make: Make) -> None:
        make(port=CLOSED_PORT).publish([])

    def test_messages_of_a_key_arrive_in_their_order(self, target: Target, make: Make) -> None:
        publisher = make()
        for begin in range(0, 60, 20):
            publisher.publish([message(f"{number}", key="k") for number in range(begin, begin + 20)])
        assert payloads(target.arrived()) == [f"{number}" for number in range(60)]

    def test_threads_publish_at_once_each_in_its_order(self, target: Target, make: Make) -> None:
        publisher = make()

        def run(thread: int) -> None:
            for number in range(10):
                publisher.publish([message(f"{thread} {number} {part}", key=f"{thread}") for part in "ab"])

        at_once(8, run)
        arrived = payloads(target.arrived())
        for thread in range(8):
            mine = [each for each in arrived if each.startswith(f"{thread} ")]
            assert mine == [f"{thread} {number} {part}" for number in range(10) for part in "ab"]


class Refusals:
    """What cannot be sent is reported, and the rest truthfully."""

    #: What is said of a message that is larger than 2000 bytes where that is the limit.
    said = "2000"

    def test_of_a_batch_the_refused_one_is_named(self, target: Target, make: Make) -> None:
        batch = [message("a"), message("b", destination=target.refused), message("c")]
        assert fails(make(), *batch) == [1]
        assert sorted(payloads(target.arrived())) == ["a", "c"]

    def test_behind_a_refused_message_none_of_its_key_counts_as_sent(self, target: Target, make: Make) -> None:
        batch = [
            message("a", key="k"),
            message("b", key="k", destination=target.refused),
            message("c", key="k"),
            message("d", key="other"),
        ]
        error = refusal(make(), *batch)
        assert sorted(error.unconfirmed) == [1, 2]
        assert error.unconfirmed[2] == "an earlier message of its key was not confirmed"

    def test_no_destination_at_all_says_what_to_give(self, make: Make) -> None:
        error = refusal(make(own=False), message("a"))
        assert "it has no destination" in error.unconfirmed[0]
        assert "give one of the two" in error.unconfirmed[0]

    def test_the_messages_destination_goes_before_the_publishers(self, target: Target, make: Make) -> None:
        assert fails(make(), message("a", destination=target.refused)) == [0]
        assert fails(make(own=False), message("a", destination=target.refused)) == [0]

    def test_what_is_no_text_is_reported_and_the_rest_is_sent(self, target: Target, make: Make) -> None:
        batch = [
            message("a", key=b"bytes"),
            message("b", headers={"n": 3}),
            message("c", id="\udcff"),
            OutgoingMessage(payload="text"),  # type: ignore[arg-type]
            message("e"),
        ]
        error = refusal(make(), *batch)
        assert error.unconfirmed == {
            0: "the key is of type bytes; give text",
            1: "the header 'n' is of type int; give text",
            2: "the id holds what UTF-8 cannot write: '\\udcff'; give other text",
            3: "the payload is of type str; encode it to bytes",
        }
        assert payloads(target.arrived()) == ["e"]

    def test_too_large_is_reported_with_the_limit(self, target: Target, make: Make) -> None:
        publisher = make(**self.limit(2_000))
        error = refusal(publisher, message("a"), message("b" * 3_000, key="k"), message("c", key="k"), message("d"))
        assert sorted(error.unconfirmed) == [1, 2]
        assert self.said in error.unconfirmed[1]
        assert sorted(payloads(target.arrived())) == ["a", "d"]

    def limit(self, size: int) -> dict[str, object]:
        """The option that limits a message's bytes."""
        return {"max_bytes": size}


class Outages:
    """The way to the broker."""

    def test_a_refused_connection_says_where(self, target: Target, make: Make) -> None:
        publisher = make(port=CLOSED_PORT, login=f"shop:{PASSWORD}", timeout=3)
        error = refusal(publisher, message("a"), message("b"))
        assert sorted(error.unconfirmed) == [0, 1]
        assert f"127.0.0.1:{CLOSED_PORT}" in str(error)
        assert "refused" in str(error).lower()
        assert PASSWORD not in f"{error} {error.unconfirmed} {publisher.name} {publisher!r}"

    def test_a_server_that_is_silent_from_the_start_ends_the_publish_in_time(
        self, target: Target, make: Make, silent_port: int
    ) -> None:
        error = refusal(make(port=silent_port, timeout=1), message("a"), message("b"))
        assert sorted(error.unconfirmed) == [0, 1]

    def test_closed_twice_it_sends_nothing_more(self, target: Target, make: Make) -> None:
        publisher = make()
        publisher.publish([message("a")])
        publisher.close()
        publisher.close()
        assert "closed" in str(refusal(publisher, message("b")))
        assert payloads(target.arrived()) == ["a"]

    def test_a_publisher_never_used_is_closed(self, make: Make) -> None:
        make(port=CLOSED_PORT).close()

    def test_a_forked_child_has_a_connection_of_its_own(self, target: Target) -> None:
        with child("tests.relay.forking", target.url(), publisher=self.module()) as running:
            assert running.wait_for("done") == ["done 0"]
            assert running.exit_code() == 0
        arrived = payloads(target.arrived())
        assert (arrived[0], sorted(arrived[1:3]), arrived[3]) == ("before", ["child", "parent"], "after")

    def module(self) -> str:
        """The publisher's module."""
        raise NotImplementedError


class Cuts:
    """What happens to connections that stood, by way of a proxy."""

    #: Where closing does not end a publish that waits, its time does.
    patience: ClassVar[dict[str, object]] = {}
    #: Seconds in which a publish ends; the first one, which connects, has to succeed in them.
    seconds: ClassVar[int] = 1

    def test_after_a_cut_the_next_publish_connects_again(self, target: Target, make: Make, cuts: TCPProxy) -> None:
        publisher = make(port=cuts.port)
        publisher.publish([message("a")])
        for payload in "bcd":
            cuts.cut()
            publish_again(publisher, message(payload))
        assert list(dict.fromkeys(payloads(target.arrived()))) == ["a", "b", "c", "d"]

    def test_a_server_that_falls_silent_ends_the_publish_in_time(
        self, target: Target, make: Make, cuts: TCPProxy
    ) -> None:
        publisher = make(port=cuts.port, timeout=self.seconds)
        publisher.publish([message("a")])
        cuts.swallow()
        assert fails(publisher, message("b", key="k"), message("c", key="k"), message("d")) == [0, 1, 2]

    def test_closing_ends_a_publish_that_waits(self, target: Target, make: Make, cuts: TCPProxy) -> None:
        publisher = make(port=cuts.port, **self.patience)
        publisher.publish([message("a")])
        cuts.swallow()
        refused: list[PublishError] = []
        waiting = threading.Thread(target=lambda: refused.append(refusal(publisher, message("b"))))
        waiting.start()
        publisher.close()
        waiting.join(LIMIT)
        assert [sorted(error.unconfirmed) for error in refused] == [[0]]
