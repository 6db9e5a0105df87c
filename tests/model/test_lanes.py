"""A model of the lanes: rows of one key run one at a time, oldest first, and behind one that failed."""

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqlqueue.clock import UTC
from sqlqueue.consumer.key_order import Blocked, KeyOrder

NOW = datetime(2030, 1, 1, tzinfo=UTC)
KEYS = st.sampled_from([None, "a", "b", 7, b"c"])
Key = str | int | bytes | None


class LanesModel(RuleBasedStateMachine):
    """The rows in hand, in the order in which they entered, of which the first of each key runs."""

    @initialize()
    def start(self) -> None:
        self.lanes: KeyOrder[int] = KeyOrder()
        self.in_hand: dict[Key, list[int]] = {}
        self.free: list[int] = []
        self.failed: dict[Key, Blocked] = {}
        self.ids = 0

    @property
    def running(self) -> list[Key]:
        return sorted(self.in_hand, key=repr)

    def running_key(self, data: st.DataObject) -> Key:
        return data.draw(st.sampled_from(self.running))

    @rule(key=KEYS)
    def a_new_row_is_claimed(self, key: Key) -> None:
        self.ids += 1
        if key is None:
            assert self.lanes.enter(key, self.ids)
            self.free.append(self.ids)
        elif key in self.in_hand:
            assert not self.lanes.enter(key, self.ids)
            self.in_hand[key].append(self.ids)
        elif key in self.failed:
            assert self.lanes.blocked(key, self.ids) == self.failed[key]
            assert not self.lanes.holds_back(key, self.ids)
        else:
            assert self.lanes.blocked(key, self.ids) is None
            assert self.lanes.enter(key, self.ids)
            self.in_hand[key] = [self.ids]

    @precondition(lambda self: any(key not in self.in_hand for key in self.failed))
    @rule(data=st.data())
    def a_failed_row_is_claimed_again(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted((key for key in self.failed if key not in self.in_hand), key=repr)))
        id = self.failed[key].id
        assert isinstance(id, int)
        assert self.lanes.any_blocked
        assert self.lanes.holds_back(key, id)
        assert self.lanes.blocked(key, id) is None
        assert self.lanes.enter(key, id)
        self.in_hand[key] = [id]

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def a_row_is_settled_for_good(self, data: st.DataObject) -> None:
        key = self.running_key(data)
        _, *behind = self.in_hand[key]
        assert self.lanes.leave(key) == (behind[0] if behind else None)
        self.failed.pop(key, None)
        if behind:
            self.in_hand[key] = behind
        else:
            del self.in_hand[key]

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data(), after=st.none() | st.integers(0, 100))
    def a_row_will_be_tried_again(self, data: st.DataObject, after: int | None) -> None:
        key = self.running_key(data)
        first, *behind = self.in_hand.pop(key)
        until = None if after is None else NOW + timedelta(seconds=after)
        assert list(self.lanes.hold(key, first, until)) == behind
        self.failed[key] = Blocked(first, until)

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def a_row_leaves_unsettled(self, data: st.DataObject) -> None:
        key = self.running_key(data)
        _, *behind = self.in_hand.pop(key)
        assert list(self.lanes.put_off(key)) == behind

    @precondition(lambda self: any(len(line) > 1 for line in self.in_hand.values()))
    @rule(data=st.data())
    def a_row_that_waits_is_lost(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted((key for key in self.in_hand if len(self.in_hand[key]) > 1), key=repr)))
        lost = data.draw(st.sampled_from(self.in_hand[key][1:]))
        assert self.lanes.forget(key, lost)
        assert not self.lanes.forget(key, lost)
        self.in_hand[key].remove(lost)

    @rule(key=KEYS)
    def whoever_held_a_key_back_is_settled_elsewhere(self, key: Key) -> None:
        self.lanes.unblock(key)
        self.failed.pop(key, None)

    @rule()
    def everything_that_waits_goes_back(self) -> None:
        waiting = [id for line in self.in_hand.values() for id in line[1:]]
        assert self.lanes.clear() == waiting
        self.in_hand = {key: line[:1] for key, line in self.in_hand.items()}

    @precondition(lambda self: self.free)
    @rule()
    def a_row_without_a_key_ends_and_moves_nobody(self) -> None:
        id = self.free.pop()
        assert self.lanes.leave(None) is None
        assert self.lanes.hold(None, id, NOW) == ()
        assert self.lanes.put_off(None) == ()
        assert not self.lanes.forget(None, id)

    @invariant()
    def exactly_the_keys_in_hand_are_busy(self) -> None:
        for key in ("a", "b", 7, b"c"):
            assert self.lanes.busy(key) == (key in self.in_hand)
        assert self.lanes.any_blocked == bool(self.failed)


def test_the_lanes_keep_every_key_in_order() -> None:
    run_state_machine_as_test(LanesModel, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))
