"""What a publish tells of its messages: nothing is confirmed that was not, or that overtook one of its key."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue import PublishError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.tally import BEHIND, Tally

Fate = tuple[str | None, str]

fates = st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.sampled_from(["confirmed", "refused", "unheard"])))


def unconfirmed(tally: Tally) -> dict[int, str]:
    try:
        tally.close("target", "nothing was heard")
    except PublishError as error:
        return dict(error.unconfirmed)
    return {}


def told(messages: Sequence[Fate]) -> Tally:
    tally = Tally([OutgoingMessage(payload=b"", key=key) for key, _ in messages])
    for place, (_, fate) in enumerate(messages):
        if fate == "confirmed":
            tally.confirm(place)
        elif fate == "refused":
            tally.refuse(place, "refused")
    return tally


@given(fates)
def test_confirmed_is_what_was_and_came_behind_no_other(messages: list[Fate]) -> None:
    expected = {
        place
        for place, (key, fate) in enumerate(messages)
        if fate != "confirmed"
        or (
            key is not None
            and any(before == (key, lost) for before in messages[:place] for lost in ("refused", "unheard"))
        )
    }
    assert unconfirmed(told(messages)).keys() == expected


@given(fates)
def test_lines_hold_what_may_be_sent_each_key_in_its_order(messages: list[Fate]) -> None:
    refused = {key for key, fate in messages if fate == "refused" and key is not None}
    may_be_sent = [place for place, (key, fate) in enumerate(messages) if fate == "unheard" and key not in refused]
    lines = told(messages).lines()
    assert sorted(place for line in lines for place in line) == may_be_sent
    assert all(line == sorted(line) for line in lines)
    keys = [{messages[place][0] for place in line} for line in lines]
    assert all(len(each) == 1 for each in keys)
    with_key = [each for each in keys if None not in each]
    assert len(with_key) == len({key for each in with_key for key in each})


def test_each_has_its_reason_and_the_first_is_in_the_text() -> None:
    tally = Tally([OutgoingMessage(payload=b"", key=key) for key in ("a", "a", "b", "c")])
    tally.refuse(0, "too blue")
    tally.confirm(1)
    tally.confirm(2)
    with pytest.raises(PublishError) as caught:
        tally.close("nats://host", "nothing was heard")
    assert caught.value.unconfirmed == {0: "too blue", 1: BEHIND, 3: "nothing was heard"}
    assert str(caught.value) == "nats://host: 3 of 4 messages not confirmed; message 0: too blue"
