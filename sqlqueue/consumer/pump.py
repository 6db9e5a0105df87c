"""The pump: one thread owns the database work of a queue whose deliveries hold no connection.

It drains finished deliveries, turns (settles them and claims for the idle workers, in one round trip), and hands the
claims to the workers. While a turn is under way more deliveries finish, so batches grow by themselves under load and
nothing waits for a timer when idle. All that the thread decides on is its own; others reach it by its inbox alone.
"""

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from time import monotonic

from sqlqueue.consumer.budget import Budget
from sqlqueue.consumer.extending import extend
from sqlqueue.consumer.handlers import Finished, Runner, Work
from sqlqueue.consumer.hands import Hands
from sqlqueue.consumer.inbox import Inbox
from sqlqueue.consumer.keeper import Keeper
from sqlqueue.consumer.ledger import Ledger
from sqlqueue.consumer.notices import Notices
from sqlqueue.consumer.outage import Outage
from sqlqueue.consumer.pace import Pace
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Trouble
from sqlqueue.settling import decide
from sqlqueue.strategies.base import Claim, Strategy, Turned

log = logging.getLogger("sqlqueue")

#: Seconds that a turn waits for one of the pool's connections: an eighth of a lease within these bounds.
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 10.0

#: Seconds until a row is looked at again whose key waits for a row that another instance has.
PUT_OFF = 1.0


class Pump:
    """The database work of one queue. A test may call `step()` itself, without a thread."""

    def __init__(
        self,
        *,
        queue: str,
        strategy: Strategy,
        runner: Runner,
        hands: Hands,
        pace: Pace,
        keeper: Keeper,
        budget: Budget,
        now: Callable[[], datetime],
        classify: Callable[[BaseException], Trouble],
        notices: Notices,
        certain: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue, self._strategy, self._runner, self._hands = queue, strategy, runner, hands
        self._pace, self._keeper, self._budget, self._now = pace, keeper, budget, now
        self._classify, self._notices, self._certain = classify, notices, certain
        self._inbox: Inbox[Finished] = Inbox()
        self._looked = -1
        self._stopping = self._giving_up = False
        self.ledger = Ledger(queue, hands, notices)
        self.outage = Outage(queue)
        self.fatal: BaseException | None = None
        self._refused: Exception | None = None

    # -- from other threads -----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look now; a wake-up while a claim is under way counts for the next wait."""
        self._inbox.wake()

    def finish(self, finished: Finished) -> None:
        """Take a finished delivery to be settled; one that comes after the end is told that it is late."""
        if not self._inbox.put(finished):
            self.ledger.late(finished.work)

    def stop(self) -> None:
        """Claim no more; what was claimed and not started goes back, what is in work is waited for."""
        self._stopping = True
        self._inbox.rouse()

    def give_up(self) -> None:
        """Give back what is still in work, and end."""
        self._stopping = self._giving_up = True
        self._inbox.rouse()

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and the last look, begun after the last wake-up, found nothing more."""
        return not self._hands.held and not self.ledger.unsettled and self._looked == self._inbox.wakes

    @property
    def held(self) -> int:
        """Rows in hand: claimed and not settled."""
        return len(self._hands.held)

    # -- the thread -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step until stopped and everything in work is settled."""
        while self.step():
            pass
        self._inbox.close()

    def step(self) -> bool:
        """Wait for something to do and do it; False when there is nothing left to do."""
        finished, woken = self._inbox.take(self._timeout())
        for one in finished:
            self.ledger.enter(one)
        if woken:
            self._pace.wake(monotonic())
        if self._stopping:
            self.ledger.put_back(self._hands.unstarted())
        if self._giving_up:
            self.ledger.give_up()
        try:
            self._extend()
            if not self._must_wait(monotonic()):
                self._turn()
        except Exception as error:  # noqa: BLE001 - the loop's edge: whatever went wrong is classified
            self._trouble(error)
        return not self._done

    @property
    def _done(self) -> bool:
        if self.fatal is not None or (self._giving_up and self.outage.lasts):
            return True
        return self._stopping and not self._hands.held

    def _timeout(self) -> float | None:
        now = monotonic()
        waits = [self._keeper.wait(now)]
        if self._stopping and not self._hands.held:
            waits.append(0.0)
        elif self.ledger.unsettled:
            waits.append(self._pace.wait(now) if self._must_wait(now) else 0.0)
        elif not self._stopping and self._hands.room > 0:
            waits.append(self._pace.wait(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def _must_wait(self, now: float) -> bool:
        """Whether an outage says to leave the database alone for now."""
        return self.outage.lasts and not self._giving_up and self._pace.wait(now) != 0.0

    # -- turns ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Settle what is finished and claim what fits, then hand out the claims."""
        now = monotonic()
        look = self._pace.wait(now) == 0.0
        limit = 0
        if look and not self._stopping:
            limit = max(0, min(self._hands.room + len(self.ledger.unsettled), self._hands.capacity))
        if not limit and not self.ledger.unsettled:
            return
        wakes = self._inbox.wakes
        if limit:
            self._pace.begin(now)
        turned = self._settle_and_claim(limit)
        if turned is None:
            return
        self._works_again()
        if limit:
            self._dispatch(turned.claims)
            self._after_look(len(turned.claims) < limit, wakes)

    def _settle_and_claim(self, limit: int) -> Turned | None:
        """One turn; None where a settlement was refused and all were settled singly instead."""
        finished, self.ledger.unsettled = self.ledger.unsettled, []
        pairs = [(one.work.delivery.claim, one.verdict.settlement) for one in finished]
        try:
            with self._budget.connection(self._patience) as connection:
                turned = self._strategy.turn(connection, pairs, limit, self._now())
        except Exception as error:  # sorted by what the dialect makes of it
            self.ledger.unsettled = finished
            if not finished or self._classify(error) is not Trouble.PERMANENT:
                raise
            self._settle_singly()
            return None
        self._post(finished, turned)
        return turned

    def _settle_singly(self) -> None:
        """One settlement that the database refuses must not keep the others: each in a transaction of its own."""
        while self.ledger.unsettled:
            one = self.ledger.unsettled[-1]
            settled = self._settle_one(one) or self._settle_failed(one)
            self.ledger.unsettled.remove(one)
            if not settled:
                self.ledger.put_back(self._hands.dropped(one.work))

    def _settle_failed(self, one: Finished) -> bool:
        """A settlement that was refused is a failure of its row, settled by its policy."""
        error = self._refused
        assert error is not None
        attempt = one.work.delivery.attempt
        return self._settle_one(
            Finished(one.work, decide(self._runner.rules, attempt, error, self._now()), one.seconds)
        )

    def _settle_one(self, one: Finished) -> bool:
        """Settle one row; False where the database refuses that: its lease will end."""
        claim = one.work.delivery.claim
        try:
            with self._budget.connection(self._patience) as connection:
                turned = self._strategy.turn(connection, [(claim, one.verdict.settlement)], 0, self._now())
        except Exception as error:  # sorted by what the dialect makes of it
            if self._classify(error) is not Trouble.PERMANENT:
                raise
            self._refused = error
            log.error("queue %s: row %r: it could not be %s", self._queue, claim.id, one.verdict.kind, exc_info=error)
            return False
        self._post([one], turned)
        return True

    def _post(self, finished: Sequence[Finished], turned: Turned) -> None:
        for due in self.ledger.post(finished, turned):
            if due is None:
                self._looked = -1
            self._pace.due(monotonic(), 0.0 if due is None else (due - self._now()).total_seconds())

    def _dispatch(self, claims: Sequence[Claim]) -> None:
        """Hand claimed rows to the workers; a row whose key waits for a failed one goes back."""
        if not claims:
            return
        self._keeper.written(monotonic())
        key = self._runner.reader.raw_key
        works = [Work(Delivery(self._queue, claim), key(claim.row)) for claim in claims]
        for work in self._hands.in_order(works):
            blocked = self._hands.blocked(work)
            if blocked is not None and self._still_blocked(blocked.id, blocked.until, work):
                self._hands.held.add(work)
                soon = self._now() + timedelta(seconds=PUT_OFF)
                self.ledger.put_back([work], soon if blocked.until is None else max(blocked.until, soon))
                continue
            self._notices.tell("claimed", work.delivery)
            self._hands.take(work)

    def _still_blocked(self, id: object, until: datetime | None, work: Work) -> bool:
        if until is not None and until > self._now():
            return True
        with self._budget.connection(self._patience) as connection:
            unfinished = self._strategy.unfinished(connection, id)
        if not unfinished:
            self._hands.unblock(work)
        return unfinished

    def _after_look(self, short: bool, wakes: int) -> None:
        if not short:
            self._pace.full(monotonic())
            return
        now = self._now()
        with self._budget.connection(self._patience) as connection:
            ahead = self._strategy.look_ahead(connection, now)
        due_in = None if ahead.due is None else (ahead.due - now).total_seconds()
        self._pace.short(monotonic(), due_in=due_in, hidden=ahead.hidden, certain=self._certain())
        if not self.ledger.unsettled:
            self._looked = wakes
        self._notices.tell("looked")

    # -- leases and trouble -----------------------------------------------------------------------------------

    def _extend(self) -> None:
        """Extend the leases of all that is in work, once half of the oldest has passed."""
        if self._keeper.wait(monotonic()) != 0.0:
            return
        settling = {one.work for one in self.ledger.unsettled}
        works = {id(work.delivery.claim): work for work in self._hands.held - settling}
        self._keeper.failed(monotonic())  # until it went through
        if works:
            claims = [work.delivery.claim for work in works.values()]
            lost = extend(
                self._strategy, self._budget, claims, now=self._now, classify=self._classify, timeout=self._patience
            )
            for claim in lost:
                self.ledger.lose(works[id(claim)])
            self._notices.tell("extended", detail=len(claims) - len(lost))
        self._keeper.extended(monotonic(), bool(works))

    @property
    def _patience(self) -> float:
        """Seconds to wait for one of the pool's connections, so that the leases in hand can still be extended."""
        return max(SHORTEST_WAIT, min(LONGEST_WAIT, self._keeper.lease / 8))

    def _trouble(self, error: Exception) -> None:
        trouble = self._classify(error)
        if trouble is Trouble.CLOSED:
            self.fatal = error
            return
        permanent = trouble is Trouble.PERMANENT
        pause = self._pace.trouble(monotonic(), spread=random.random(), permanent=permanent)  # noqa: S311 - jitter
        self.outage.begin(trouble, error, pause)
        self._notices.tell("trouble", detail=self.outage.error)

    def _works_again(self) -> None:
        self._pace.recovered()
        if self.outage.end():
            self._notices.tell("recovered")
