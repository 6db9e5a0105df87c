"""Leave: what a row takes along to its dead letter, and what is said there of why it came."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlqueue.column import Role
from sqlqueue.destination import Destination
from sqlqueue.dialect import Row
from sqlqueue.errors import DecodeError
from sqlqueue.headers import decode_headers
from sqlqueue.moving import NOW, moving
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.strategies.base import Claim, Settlement
from sqlqueue.words import Words

#: The headers of a dead letter: why it is one, which queue it comes from, and after how many attempts.
REASON, SOURCE, ATTEMPTS = "dead-letter-reason", "dead-letter-source", "dead-letter-attempts"

#: The text of headers that could not be read, for they cannot stand beside those.
FORMER_HEADERS = "dead-letter-headers"


class Leaving:
    """How one queue's rows become dead letters.

    `columns` are what the handler reads of a row, its headers among them; `cap` is the most attempts (None: no cap).
    `notify` are the calls that wake other programs' consumers of the destination.
    """

    def __init__(
        self,
        words: Words,
        destination: Destination,
        *,
        columns: Sequence[ColumnSpec],
        group: str | None = None,
        cap: int | None = None,
        notify: Sequence[Call] = (),
    ) -> None:
        dialect, spec = words.dialect, words.spec
        own, theirs = spec.role(Role.HEADERS), destination.spec.role(Role.HEADERS)
        due = destination.spec.role(Role.RETRY_AFTER)
        self.notify = notify
        self._moving = moving(words, destination)
        self._source = Destination(spec, group).name
        self._cap = cap
        self._headers_at = columns.index(own) if own in columns else None
        self._decode = dialect.decoder(own) if own else None
        self._encode_headers = dialect.encoder(theirs) if theirs else None
        self._encode_now = dialect.encoder(due) if due else None

    @property
    def singly(self) -> bool:
        """Whether each row moves by itself."""
        return self._moving.singly

    @property
    def statements(self) -> Sequence[Statement]:
        """Those of a move, in their order; the last one returns the ids of the rows that it moved."""
        return self._moving.statements

    def values(self, now: datetime) -> Mapping[str, Any]:
        """What they bind beside what is given for each row; where rows move by themselves, for one of them."""
        moment = now if self._encode_now is None else self._encode_now(now)
        made = {name: make() for name, make in self._moving.made.items()}
        return {**self._moving.constants, **made, NOW: moment}

    def headers(self, claim: Claim, settlement: Settlement) -> Any:
        """The row's headers with why it left, as the destination holds them."""
        headers = {**self._former(claim.row), REASON: settlement.error or "", SOURCE: self._source}
        if claim.attempt is not None:
            # The claim of a row whose attempts were spent has counted one that never began.
            headers[ATTEMPTS] = str(claim.attempt if self._cap is None else min(claim.attempt, self._cap))
        return headers if self._encode_headers is None else self._encode_headers(headers)

    def _former(self, row: Row) -> Mapping[str, str]:
        stored = None if self._headers_at is None else row[self._headers_at]
        if stored is None:
            return {}
        try:
            return decode_headers(stored if self._decode is None else self._decode(stored))
        except (DecodeError, ValueError, TypeError):
            return {FORMER_HEADERS: str(stored)}
