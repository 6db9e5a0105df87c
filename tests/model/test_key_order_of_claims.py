"""A model of key order where connection workers claim for themselves: what a claim passes over."""

from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from sqlqueue import Delivery
from sqlqueue.clock import UTC
from sqlqueue.consumer.key_order import KeyOrder
from sqlqueue.consumer.run_handler import Work
from sqlqueue.strategies.claim import Claim

NOW = datetime(2030, 1, 1, tzinfo=UTC)

KEYS = ["a", "b", None]


class ClaimsModel(RuleBasedStateMachine):
    """`in_work`: rows; `failed`: by key, the row that it waits for and when that is due."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: KeyOrder[Work] = KeyOrder()
        self.ids = 0
        self.in_work: list[Work] = []
        self.failed: dict[str, tuple[int, datetime | None]] = {}

    @property
    def busy(self) -> set[str]:
        return {work.key for work in self.in_work if isinstance(work.key, str)}

    @rule(key=st.sampled_from(KEYS), again=st.booleans())
    def a_claim_takes_what_it_need_not_pass_over(self, key: str | None, again: bool) -> None:
        if key in self.busy:
            return
        waits = key is not None and key in self.failed
        if waits and not again:
            return
        self.ids += 1
        id = self.failed[str(key)][0] if waits else self.ids
        work = Work(Delivery("jobs", Claim(id=id, token=None, expires=None, attempt=1, row=())), key)
        assert self.keys.enter(work.key, work)
        self.in_work.append(work)

    @precondition(lambda self: self.in_work)
    @rule(data=st.data(), how=st.sampled_from(["settled", "retried", "dropped"]), after=st.sampled_from([None, 5]))
    def a_row_leaves_its_worker(self, data: st.DataObject, how: str, after: int | None) -> None:
        work = data.draw(st.sampled_from(self.in_work))
        self.in_work.remove(work)
        due = None if after is None else NOW + timedelta(seconds=after)
        if how == "settled":
            self.keys.leave(work.key)
            self.failed.pop(str(work.key), None)
        elif how == "retried":
            self.keys.hold(work.key, work.delivery.claim.id, due)
            if isinstance(work.key, str):
                self.failed[work.key] = (work.delivery.claim.id, due)
        else:
            self.keys.put_off(work.key)

    @precondition(lambda self: self.failed.keys() - self.busy)
    @rule(data=st.data())
    def a_failed_row_was_settled_elsewhere(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.failed.keys() - self.busy)))
        self.keys.unblock(key)
        del self.failed[key]

    @invariant()
    def a_claim_passes_over_keys_in_work_and_those_that_wait_but_for_their_failed_row(self) -> None:
        waiting = {key: id for key, (id, _) in self.failed.items() if key not in self.busy}
        over = self.keys.pass_over()
        assert sorted(over.keys) == sorted(self.busy | waiting.keys())
        assert sorted(over.ids) == sorted(waiting.values())

    @invariant()
    def keys_whose_failed_row_is_due_and_did_not_come_are_known(self) -> None:
        for now in (NOW, NOW + timedelta(seconds=5)):
            late = [
                (key, id)
                for key, (id, due) in self.failed.items()
                if key not in self.busy and (due is None or due <= now)
            ]
            assert sorted(self.keys.overdue(now), key=str) == sorted(late, key=str)


def test_a_claim_passes_over_what_the_order_of_keys_asks_for() -> None:
    run_state_machine_as_test(ClaimsModel, settings=settings(max_examples=100, stateful_step_count=30, deadline=None))
