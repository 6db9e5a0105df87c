"""A model of key order in a dispatcher: rows of one key run one at a time, oldest first, and behind one that failed."""

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


class KeyOrderModel(RuleBasedStateMachine):
    """The rows in flight, in the order in which they entered, of which the first of each key runs."""

    @initialize()
    def start(self) -> None:
        self.order: KeyOrder[int] = KeyOrder()
        self.in_flight: dict[Key, list[int]] = {}
        self.free: list[int] = []
        self.failed: dict[Key, Blocked] = {}
        self.ids = 0

    @property
    def running(self) -> list[Key]:
        return sorted(self.in_flight, key=repr)

    def running_key(self, data: st.DataObject) -> Key:
        return data.draw(st.sampled_from(self.running))

    @rule(key=KEYS)
    def a_new_row_is_claimed(self, key: Key) -> None:
        self.ids += 1
        if key is None:
            assert self.order.enter(key, self.ids)
            self.free.append(self.ids)
        elif key in self.in_flight:
            assert not self.order.enter(key, self.ids)
            self.in_flight[key].append(self.ids)
        elif key in self.failed:
            assert self.order.blocked(key, self.ids) == self.failed[key]
            assert not self.order.holds_back(key, self.ids)
        else:
            assert self.order.blocked(key, self.ids) is None
            assert self.order.enter(key, self.ids)
            self.in_flight[key] = [self.ids]

    @precondition(lambda self: any(key not in self.in_flight for key in self.failed))
    @rule(data=st.data())
    def a_failed_row_is_claimed_again(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted((key for key in self.failed if key not in self.in_flight), key=repr)))
        id = self.failed[key].id
        assert isinstance(id, int)
        assert self.order.any_blocked
        assert self.order.holds_back(key, id)
        assert self.order.blocked(key, id) is None
        assert self.order.enter(key, id)
        self.in_flight[key] = [id]

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_row_is_settled_for_good(self, data: st.DataObject) -> None:
        key = self.running_key(data)
        _, *behind = self.in_flight[key]
        assert self.order.leave(key) == (behind[0] if behind else None)
        self.failed.pop(key, None)
        if behind:
            self.in_flight[key] = behind
        else:
            del self.in_flight[key]

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), after=st.none() | st.integers(0, 100))
    def a_row_will_be_tried_again(self, data: st.DataObject, after: int | None) -> None:
        key = self.running_key(data)
        first, *behind = self.in_flight.pop(key)
        until = None if after is None else NOW + timedelta(seconds=after)
        assert list(self.order.hold(key, first, until)) == behind
        self.failed[key] = Blocked(first, until)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def a_row_leaves_unsettled(self, data: st.DataObject) -> None:
        key = self.running_key(data)
        _, *behind = self.in_flight.pop(key)
        assert list(self.order.put_off(key)) == behind

    @precondition(lambda self: any(len(rows) > 1 for rows in self.in_flight.values()))
    @rule(data=st.data())
    def a_row_that_waits_is_lost(self, data: st.DataObject) -> None:
        key = data.draw(
            st.sampled_from(sorted((key for key in self.in_flight if len(self.in_flight[key]) > 1), key=repr))
        )
        lost = data.draw(st.sampled_from(self.in_flight[key][1:]))
        assert self.order.forget(key, lost)
        assert not self.order.forget(key, lost)
        self.in_flight[key].remove(lost)

    @rule(key=KEYS)
    def whoever_held_a_key_back_is_settled_elsewhere(self, key: Key) -> None:
        self.order.unblock(key)
        self.failed.pop(key, None)

    @rule()
    def everything_that_waits_goes_back(self) -> None:
        waiting = [id for rows in self.in_flight.values() for id in rows[1:]]
        assert self.order.clear() == waiting
        self.in_flight = {key: rows[:1] for key, rows in self.in_flight.items()}

    @precondition(lambda self: self.free)
    @rule()
    def a_row_without_a_key_ends_and_moves_nobody(self) -> None:
        id = self.free.pop()
        assert self.order.leave(None) is None
        assert self.order.hold(None, id, NOW) == ()
        assert self.order.put_off(None) == ()
        assert not self.order.forget(None, id)

    @invariant()
    def exactly_the_keys_in_flight_are_busy(self) -> None:
        for key in ("a", "b", 7, b"c"):
            assert self.order.busy(key) == (key in self.in_flight)
        assert self.order.any_blocked == bool(self.failed)


def test_every_key_is_kept_in_order() -> None:
    run_state_machine_as_test(KeyOrderModel, settings=settings(max_examples=100, stateful_step_count=40, deadline=None))
