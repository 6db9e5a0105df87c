"""What a publish says of its messages: nothing is confirmed that was not, or that overtook one of its key."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue import PublishError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.publishing import BEHIND, PublishResult

Fate = tuple[str | None, str]

fates = st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["confirmed", "refused", "unheard"])))


def unconfirmed(result: PublishResult) -> dict[int, str]:
    try:
        result.raise_unconfirmed("target", "nothing was heard")
    except PublishError as error:
        return dict(error.unconfirmed)
    return {}


def result_of(messages: Sequence[Fate]) -> PublishResult:
    result = PublishResult([OutgoingMessage(payload=b"", key=key) for key, _ in messages])
    for index, (_, fate) in enumerate(messages):
        if fate == "confirmed":
            result.confirm(index)
        elif fate == "refused":
            result.refuse(index, "refused")
    return result


@given(fates)
def test_confirmed_is_what_was_and_came_behind_no_other(messages: list[Fate]) -> None:
    expected = {
        index
        for index, (key, fate) in enumerate(messages)
        if fate != "confirmed"
        or (
            key is not None
            and any(before == (key, lost) for before in messages[:index] for lost in ("refused", "unheard"))
        )
    }
    assert unconfirmed(result_of(messages)).keys() == expected


@given(fates)
def test_what_may_be_sent_is_listed_by_key_each_in_its_order(messages: list[Fate]) -> None:
    refused = {key for key, fate in messages if fate == "refused" and key is not None}
    may_be_sent = [index for index, (key, fate) in enumerate(messages) if fate == "unheard" and key not in refused]
    by_key = result_of(messages).open_by_key()
    assert sorted(index for indexes in by_key for index in indexes) == may_be_sent
    assert all(indexes == sorted(indexes) for indexes in by_key)
    keys = [{messages[index][0] for index in indexes} for indexes in by_key]
    assert all(len(each) == 1 for each in keys)
    with_key = [each for each in keys if None not in each]
    assert len(with_key) == len({key for each in with_key for key in each})


def test_each_has_its_reason_and_the_first_is_in_the_text() -> None:
    result = PublishResult([OutgoingMessage(payload=b"", key=key) for key in ("a", "a", "b", "c")])
    result.refuse(0, "too blue")
    result.confirm(1)
    result.confirm(2)
    with pytest.raises(PublishError) as caught:
        result.raise_unconfirmed("nats://host", "nothing was heard")
    assert caught.value.unconfirmed == {0: "too blue", 1: BEHIND, 3: "nothing was heard"}
    assert str(caught.value) == "nats://host: 3 of 4 messages not confirmed; message 0: too blue"
