"""Group commit: turns of several connection workers in one transaction, where no lock belongs to a connection.

Turns that come while one is under way wait for its end, and go into the next. The first of those that wait leads: it
does the work of all on its own connection, and the others wake up with what came of theirs. So a busy queue has fewer
transactions, and fewer threads that contend for one writer. (The technique is known as flat combining: Hendler, Incze,
Shavit and Tzafrir, SPAA 2010.)
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Generic, TypeVar

import attrs

from sqlqueue.dialect import Connection
from sqlqueue.sql import Statement
from sqlqueue.strategies.claim import NOBODY, Claim, ConnectionStrategy, PassOver, Turn, Turned, Upcoming

T = TypeVar("T")


@attrs.define(eq=False)
class Request(Generic[T]):
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


class Grouping(Generic[T]):
    """Does what several threads ask for as one. For any thread."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._led = False
        self._waiting: list[Request[T]] = []

    def do(self, what: T, carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> Any:
        """The result for `what`, from this thread's `carry_out` or another's: it does all that it is given and returns
        a result for each, or raises and has done none. Raises what it raises for this one alone.
        """
        request = Request(what)
        with self._changing:  # decided: who leads
            leads, self._led = not self._led, True
            if not leads:
                self._waiting.append(request)
        if not leads:
            request.wait()
        if not request.done:
            self._lead(request, carry_out)
        return request.result

    def _lead(self, request: Request[T], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        with self._changing:  # decided: whose turns are one
            others = [] if request.alone else [one for one in self._waiting if not one.alone]
            self._waiting = [one for one in self._waiting if one.alone] if others else self._waiting
        try:
            if others:
                self._do_all([request, *others], carry_out)
            if not request.done:
                (request.result,) = carry_out([request.what])
                request.done = True
        finally:
            self._hand_on(others)

    def _do_all(self, requests: Sequence[Request[T]], carry_out: Callable[[Sequence[T]], Sequence[Any]]) -> None:
        """Where it fails nobody knows whose fault it was, so each is done by itself."""
        try:
            results = carry_out([one.what for one in requests])
        except Exception:  # noqa: BLE001 - raised again for the one whose fault it is
            for one in requests:
                one.alone = True
            return
        for one, result in zip(requests, results, strict=True):
            one.result, one.done = result, True

    def _hand_on(self, others: Sequence[Request[T]]) -> None:
        with self._changing:  # decided: who leads next
            self._waiting[:0] = [one for one in others if not one.done]
            following = self._waiting.pop(0) if self._waiting else None
            self._led = following is not None
        for one in others:
            if one.done:
                one.call()
        if following is not None:
            following.call()


class GroupCommit:
    """`strategy`, whose rows any connection settles and claims, for connection workers that turn side by side."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def __init__(self, strategy: ConnectionStrategy) -> None:
        self._strategy = strategy
        self._grouping: Grouping[Turn] = Grouping()

    @property
    def claim(self) -> Statement:
        return self._strategy.claim

    def statements(self) -> Sequence[Statement]:
        return self._strategy.statements()

    def turn(self, connection: Connection, turn: Turn) -> Turned:
        turned: Turned = self._grouping.do(turn, partial(self._turn_all, connection))
        return turned

    def _turn_all(self, connection: Connection, turns: Sequence[Turn]) -> Sequence[Turned]:
        if len(turns) == 1:
            return [self._strategy.turn(connection, turns[0])]
        claiming = [one.pass_over for one in turns if one.limit]
        everything = Turn(
            settlements=[pair for one in turns for pair in one.settlements],
            limit=sum(one.limit for one in turns),
            now=max(one.now for one in turns),
            pass_over=claiming[0] if claiming else NOBODY,  # where keys have an order, only one claims at a time
        )
        turned = self._strategy.turn(connection, everything)
        claims = iter(turned.claims)
        return [_part(one, turned, list(islice(claims, one.limit))) for one in turns]

    def reclaim(self, connection: Any, claim: Claim) -> bool:
        return self._strategy.reclaim(connection, claim)

    def take_over(self, connection: Any, claim: Claim) -> bool:
        return self._strategy.take_over(connection, claim)

    def let_go(self, connection: Any, claim: Claim) -> None:
        self._strategy.let_go(connection, claim)

    def look_ahead(
        self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0
    ) -> Upcoming:
        return self._strategy.look_ahead(connection, now, pass_over, held)

    def unfinished(self, connection: Connection, id: Any) -> bool:
        return self._strategy.unfinished(connection, id)


def _part(turn: Turn, turned: Turned, claims: Sequence[Claim]) -> Turned:
    """What came of one of the turns."""
    own = {id(claim) for claim, _ in turn.settlements}
    gone = [claim for claim in turned.gone if id(claim) in own]
    return Turned(claims=claims, gone=gone, failed=None if claims else turned.failed)
