"""Turns of several threads as one: those that come while one is under way wait for its end, and go into the next.

The first of those that wait leads: it does the work of all, and the others wake up with what came of theirs. So a busy
queue has fewer transactions, and fewer threads that contend for one writer. (The technique is known as flat combining:
Hendler, Incze, Shavit and Tzafrir, SPAA 2010.)

Seats whose turns are one, where no lock belongs to a connection: whoever leads turns on its own, for all.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from sqlqueue.dialect import Connection
from sqlqueue.outcome import Settlement
from sqlqueue.sql import Statement
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, ConnectionStrategy, PassOver, Turned

T = TypeVar("T")


@attrs.define(eq=False)
class Asked(Generic[T]):
    """What one thread asks for, and what came of it.

    `alone`: it is not to be done with others again, for that failed.
    """

    what: T
    result: Any = None
    done: bool = False
    alone: bool = False
    _called: Lock = attrs.field(factory=Lock)

    def __attrs_post_init__(self) -> None:
        self._called.acquire()

    def wait(self) -> None:
        """Until it is done, or this thread is to lead."""
        self._called.acquire()

    def call(self) -> None:
        self._called.release()


class Combiner(Generic[T]):
    """For any thread."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._led = False
        self._waiting: list[Asked[T]] = []

    def do(self, what: T, carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> Any:
        """The result for `what`, from this thread's `carry_out` or another's: it does all that it is given and returns
        a result for each, or raises and has done none. Raises what it raises for this one alone.
        """
        asked = Asked(what)
        with self._changing:  # decided: who leads
            leads, self._led = not self._led, True
            if not leads:
                self._waiting.append(asked)
        if not leads:
            asked.wait()
        if not asked.done:
            self._lead(asked, carry_out)
        return asked.result

    def _lead(self, asked: Asked[T], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        with self._changing:  # decided: whose turns are one
            others = [] if asked.alone else [one for one in self._waiting if not one.alone]
            self._waiting = [one for one in self._waiting if one.alone] if others else self._waiting
        try:
            if others:
                self._together([asked, *others], carry_out)
            if not asked.done:
                (asked.result,) = carry_out([asked.what])
                asked.done = True
        finally:
            self._hand_on(others)

    def _together(self, asked: Sequence[Asked[T]], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        """Where it fails nobody knows whose fault it was, so each is done by itself."""
        try:
            results = carry_out([one.what for one in asked])
        except Exception:  # noqa: BLE001 - raised again for the one whose fault it is
            for one in asked:
                one.alone = True
            return
        for one, result in zip(asked, results, strict=True):
            one.result, one.done = result, True

    def _hand_on(self, others: Sequence[Asked[T]]) -> None:
        with self._changing:  # decided: who leads next
            self._waiting[:0] = [one for one in others if not one.done]
            following = self._waiting.pop(0) if self._waiting else None
            self._led = following is not None
        for one in others:
            if one.done:
                one.call()
        if following is not None:
            following.call()


@attrs.frozen(eq=False)
class AskedTurn:
    """What one seat asks for."""

    settlements: Sequence[tuple[Claim, Settlement]]
    limit: int
    now: datetime
    pass_over: PassOver


class GroupCommit:
    """`strategy`, whose rows any connection settles and claims, for seats that turn side by side."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def __init__(self, strategy: ConnectionStrategy) -> None:
        self._strategy = strategy
        self._combiner: Combiner[AskedTurn] = Combiner()

    @property
    def claim(self) -> Statement:
        return self._strategy.claim

    def statements(self) -> Sequence[Statement]:
        return self._strategy.statements()

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        asked = AskedTurn(settlements, limit, now, pass_over)
        turned: Turned = self._combiner.do(asked, partial(self._turn, connection))
        return turned

    def _turn(self, connection: Connection, turns: Sequence[AskedTurn]) -> Sequence[Turned]:
        if len(turns) == 1:
            (one,) = turns
            return [self._strategy.turn(connection, one.settlements, one.limit, one.now, one.pass_over)]
        settlements = [pair for one in turns for pair in one.settlements]
        limit, now = sum(one.limit for one in turns), max(one.now for one in turns)
        turned = self._strategy.turn(connection, settlements, limit, now, _passed_over(turns))
        claims = iter(turned.claims)
        return [
            self._part(one, turned, [claim for _, claim in zip(range(one.limit), claims, strict=False)])
            for one in turns
        ]

    def _part(self, turn: AskedTurn, turned: Turned, claims: Sequence[Claim]) -> Turned:
        mine = {id(claim) for claim, _ in turn.settlements}
        gone = [claim for claim in turned.gone if id(claim) in mine]
        return Turned(claims=claims, gone=gone, failed=None if claims else turned.failed)

    def hold_again(self, connection: Any, claim: Claim) -> bool:
        return self._strategy.hold_again(connection, claim)

    def take_over(self, connection: Any, claim: Claim) -> bool:
        return self._strategy.take_over(connection, claim)

    def let_go(self, connection: Any, claim: Claim) -> None:
        self._strategy.let_go(connection, claim)

    def look_ahead(self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        return self._strategy.look_ahead(connection, now, pass_over, held)

    def unfinished(self, connection: Connection, id: Any) -> bool:
        return self._strategy.unfinished(connection, id)


def _passed_over(turns: Sequence[AskedTurn]) -> PassOver:
    """What every one of the turns leaves alone; where keys are, only one looks at a time."""
    looking = [one.pass_over for one in turns if one.limit]
    return looking[0] if looking else NOBODY
