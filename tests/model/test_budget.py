"""A model of the pool's budget: who holds connections, and who of those that wait is served next."""

from contextlib import ExitStack
from threading import Event, Thread
from typing import Any, cast

import attrs
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

from sqlqueue.consumer.budget import Budget, BudgetSpent, Slots

#: Seconds that a thread has to do what it is free to do.
LIMIT = 10.0


@attrs.define(eq=False)
class Asker:
    """A thread that asks for a connection for a delivery of `queue`, and keeps it until it is told to give it back."""

    slots: Slots
    queue: str | None
    gives_up: bool = False
    asked: Event = attrs.field(factory=Event)
    held: Event = attrs.field(factory=Event)
    release: Event = attrs.field(factory=Event)
    thread: Thread = attrs.field(init=False)

    def start(self) -> None:
        self.thread = Thread(target=self._run)
        self.thread.start()
        assert self.asked.wait(LIMIT)

    def _run(self) -> None:
        try:
            self.slots.take(LIMIT, self.queue, self._given_up)
        except BudgetSpent:
            assert self.gives_up
            return
        self.held.set()
        self.asked.set()
        self.release.wait(LIMIT)
        self.slots.give_back(self.queue)

    def _given_up(self) -> bool:
        self.asked.set()  # this thread waits
        return self.gives_up

    def end(self) -> None:
        self.thread.join(LIMIT)
        assert not self.thread.is_alive()


class SlotsModel(RuleBasedStateMachine):
    """`waiting`: in the order in which they came; `holding`: those that were served."""

    @initialize(size=st.integers(1, 5), listeners=st.integers(0, 1))
    def start(self, size: int, listeners: int) -> None:
        self.slots = Slots(size, listeners=listeners)
        self.budget = Budget(cast("Any", None), self.slots)
        self.most = max(1, size - 1 - listeners)
        self.statements: list[ExitStack] = []
        self.waiting: list[Asker] = []
        self.holding: list[Asker] = []

    @property
    def most_by_deliveries(self) -> int:
        return max(1, self.most - 1) if self.statements else self.most

    @precondition(lambda self: len(self.waiting) < 4)
    @rule(queue=st.sampled_from([None, "one", "other"]))
    def somebody_asks(self, queue: str | None) -> None:
        asker = Asker(self.slots, queue)
        self.waiting.append(asker)
        asker.start()
        self.serve()

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def somebody_gives_one_back(self, data: st.DataObject) -> None:
        asker = data.draw(st.sampled_from(self.holding))
        self.holding.remove(asker)
        asker.release.set()
        asker.end()
        self.serve()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def somebody_waits_no_longer(self, data: st.DataObject) -> None:
        asker = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(asker)
        asker.gives_up = True
        self.budget.rouse()
        asker.end()
        self.serve()

    @precondition(lambda self: len(self.statements) < 2)
    @rule()
    def a_queue_starts_that_needs_connections_for_its_statements_only(self) -> None:
        lasting = ExitStack()
        lasting.enter_context(self.budget.for_statements())
        self.statements.append(lasting)

    @precondition(lambda self: self.statements)
    @rule()
    def such_a_queue_stops(self) -> None:
        self.statements.pop().close()
        self.serve()

    def serve(self) -> None:
        """Whoever may have a connection now gets one: nobody sleeps through it."""
        while (asker := self.next_served()) is not None:
            assert asker.held.wait(LIMIT)
            self.waiting.remove(asker)
            self.holding.append(asker)

    def next_served(self) -> Asker | None:
        """The first that came; who holds one for a delivery lets pass those whose place is kept."""
        if len(self.holding) >= self.most:
            return None
        for_deliveries = sum(one.queue is not None for one in self.holding) < self.most_by_deliveries
        return next((one for one in self.waiting if for_deliveries or one.queue is None), None)

    @invariant()
    def those_hold_connections_that_should(self) -> None:
        assert self.slots.held == len(self.holding) <= self.most
        assert self.slots.held_by_deliveries == sum(one.queue is not None for one in self.holding)
        assert not any(one.held.is_set() for one in self.waiting)

    @invariant()
    def a_queue_knows_whether_others_wait(self) -> None:
        for queue in ("one", "other"):
            assert self.slots.wanted(queue) == any(one.queue != queue for one in self.waiting)

    def teardown(self) -> None:
        for one in [*getattr(self, "waiting", ()), *getattr(self, "holding", ())]:
            one.gives_up = True
            one.release.set()
        if hasattr(self, "budget"):
            self.budget.rouse()
            for one in [*self.waiting, *self.holding]:
                one.end()


def test_the_budget_serves_all_who_wait_in_turn_and_never_too_many() -> None:
    run_state_machine_as_test(SlotsModel, settings=settings(max_examples=40, stateful_step_count=30, deadline=None))
