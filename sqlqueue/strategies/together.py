"""Seats whose turns are one, where no lock belongs to a connection: whoever leads turns on its own, for all."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

import attrs

from sqlqueue.dialect import Connection
from sqlqueue.sql import Statement
from sqlqueue.strategies.base import NOBODY, Ahead, Claim, PassOver, Seated, Settlement, Turned
from sqlqueue.strategies.combining import Combiner


@attrs.frozen(eq=False)
class Turn:
    """What one seat asks for."""

    settlements: Sequence[tuple[Claim, Settlement]]
    limit: int
    now: datetime
    pass_over: PassOver


class Together:
    """`strategy`, whose rows any connection settles and claims, for seats that turn side by side."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def __init__(self, strategy: Seated) -> None:
        self._strategy = strategy
        self._combiner: Combiner[Turn] = Combiner()

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
        asked = Turn(settlements, limit, now, pass_over)
        turned: Turned = self._combiner.do(asked, partial(self._turn, connection))
        return turned

    def _turn(self, connection: Connection, turns: Sequence[Turn]) -> Sequence[Turned]:
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

    def _part(self, turn: Turn, turned: Turned, claims: Sequence[Claim]) -> Turned:
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


def _passed_over(turns: Sequence[Turn]) -> PassOver:
    """What every one of the turns leaves alone; where keys are, only one looks at a time."""
    looking = [one.pass_over for one in turns if one.limit]
    return looking[0] if looking else NOBODY
