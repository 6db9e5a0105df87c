"""The target in memory fails and waits as a test demands."""

import threading

import pytest

from sqlqueue import OutgoingMessage, PublishError
from sqlqueue.relay import MemoryPublisher


def message(number: int, key: str | None = None) -> OutgoingMessage:
    return OutgoingMessage(payload=b"%d" % number, key=key)


def test_it_remembers_calls_and_messages_in_order() -> None:
    bus = MemoryPublisher("bus")
    bus.publish([message(1), message(2)])
    bus.publish([message(3)])
    assert bus.name == "memory://bus"
    assert bus.calls == [(message(1), message(2)), (message(3),)]
    assert bus.messages == bus.wait_for(3) == [message(1), message(2), message(3)]


def test_a_failure_on_demand_takes_nothing_and_the_next_call_goes_on() -> None:
    bus = MemoryPublisher()
    bus.fail(OSError("away"))
    with pytest.raises(OSError, match="away"):
        bus.publish([message(1)])
    bus.publish([message(1)])
    assert bus.messages == [message(1)]


def test_a_refused_message_holds_back_those_of_its_key_behind_it_and_no_others() -> None:
    bus = MemoryPublisher()
    bus.refuse(lambda one: one.payload == b"1")
    given = [message(0, "a"), message(1, "a"), message(2, "a"), message(3, "b"), message(1), message(5)]
    with pytest.raises(PublishError) as caught:
        bus.publish(given)
    behind = "an earlier message of its key was not confirmed"
    assert caught.value.unconfirmed == {1: "refused", 2: behind, 4: "refused"}
    assert bus.messages == [given[0], given[3], given[5]]
    bus.accept()
    bus.publish(given[1:3])
    assert bus.messages[3:] == given[1:3]


def test_a_held_publish_waits_and_a_closed_one_fails() -> None:
    bus = MemoryPublisher()
    with bus.held():
        publishing = threading.Thread(target=bus.publish, args=([message(1)],))
        publishing.start()
        bus.wait_for_calls(1)
        assert bus.messages == []
    publishing.join()
    assert bus.messages == [message(1)]
    bus.close()
    bus.close()
    with pytest.raises(PublishError, match="memory:// is closed"):
        bus.publish([message(2)])


def test_a_name_is_one_publisher_until_that_is_closed() -> None:
    first = MemoryPublisher.named("one")
    assert MemoryPublisher.named("one") is first
    first.close()
    second = MemoryPublisher.named("one")
    assert second is not first
    assert not second.closed


def test_a_wait_says_what_came_instead() -> None:
    with pytest.raises(AssertionError, match=r"only this was published after 0\.01 s: \[\]"):
        MemoryPublisher().wait_for(1, timeout=0.01)
