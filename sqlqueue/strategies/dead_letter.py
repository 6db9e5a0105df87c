"""Dead letters: the statements that move a row to its destination, and the headers that say there why it came.

Each move settles the row as well: whoever is fenced out moves nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.codec import decode_headers
from sqlqueue.destination import Destination, Match, matches
from sqlqueue.dialect import Converter, Row
from sqlqueue.errors import DecodeError
from sqlqueue.outcome import Settlement
from sqlqueue.queue_sql import QueueSQL, also
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, default_of, makes_default
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import SETTLE
from sqlqueue.strategies.claim import Claim

#: The value of a turn's *now*, as the destination holds moments.
NOW = "dead_letter_now"
GROUP = "dead_letter_group"
DEFAULT = "dead_letter_default_{number}"


@attrs.frozen
class Moving:
    """The statements of a move, of which the last one returns the ids of the rows that it moved, and what they bind
    beside what is given. `singly`: they move one row. `made`: what makes a value of that one row."""

    statements: Sequence[Statement]
    singly: bool
    constants: Mapping[str, Any]
    made: Mapping[str, Callable[[], Any]] = attrs.field(factory=dict)


@attrs.frozen
class _Value:
    """What a column of the destination takes. `of_row`: the expression reads the row, or what is given for it."""

    column: ColumnSpec
    expression: str
    of_row: bool = False


def moving(sql: QueueSQL, destination: Destination) -> Moving:
    """How a row of the queue goes to its destination; `DeclarationError` where it has no place."""
    spec, lease = sql.spec, sql.spec.role(Role.LEASE)
    headers = destination.spec.role(Role.HEADERS)
    given = {"id": spec.id}
    given |= {"token": lease} if lease else {}
    given |= {"headers": headers} if headers else {}
    if destination.is_in(spec):
        return _to_group(sql, destination, given)
    return _to_table(sql, destination, given)


def is_single(sql: QueueSQL) -> bool:
    """Whether each row is settled by itself, as it is where a delivery holds its connection."""
    return not sql.spec.has(Role.LEASE)


def _to_group(sql: QueueSQL, destination: Destination, given: Mapping[str, ColumnSpec]) -> Moving:
    """The row begins anew in its new group: not tried yet, due, and held by nobody."""
    single, due = is_single(sql), sql.spec.role(Role.RETRY_AFTER)
    afresh = {
        "headers": sql.given("headers", singly=single),
        "now": "NULL" if due is None or due.optional else _now(sql, due),
    }
    assigned = sql.assignments("dead_letter", first=Role.GROUP, values=afresh)
    statement = sql.settlement("move to another group", SETTLE, given, singly=single, assigned=", ".join(assigned))
    return Moving([statement], single, {GROUP: destination.group})


def _to_table(sql: QueueSQL, destination: Destination, given: Mapping[str, ColumnSpec]) -> Moving:
    dialect, found = sql.dialect, matches(sql.spec, destination)
    defaults = _defaults(sql, found)
    made = {default.name: default.value for default in defaults.values() if makes_default(default.column)}
    single = is_single(sql) or bool(made)
    values = [_value(sql, match, destination, defaults, single=single) for match in found]
    kept = [value for value in values if value.of_row]
    names = {id(value): f"_kept_{number}" for number, value in enumerate(kept)}
    shape = {
        "destination": dialect.table(destination.spec),
        "columns": ", ".join(dialect.quote(value.column.name) for value in values),
        "values": ", ".join(value.expression for value in values),
        "kept": also([f"{value.expression} AS {names[id(value)]}" for value in kept]),
        "kept_values": ", ".join(names.get(id(value), value.expression) for value in values),
    }
    composed = [
        sql.settlement("move to another table", template, given, singly=single, **shape) for template in dialect.moves
    ]
    statements = [
        attrs.evolve(
            one,
            given=tuple(name for name in one.given if name in one.parameters),
            width=int(one is composed[-1]),
            fresh=True,  # what writes within a WITH may not stand within another
        )
        for one in composed
    ]
    constants = {one.name: one.value() for one in defaults.values() if one.name not in made}
    return Moving(statements, single, {**constants, GROUP: destination.group}, made)


@attrs.frozen
class _Default:
    """The declared default of a column of the destination. `name`: of its value."""

    column: ColumnSpec
    name: str
    encode: Converter | None

    def value(self) -> Any:
        default = default_of(self.column)
        return default if default is None or self.encode is None else self.encode(default)


def _defaults(sql: QueueSQL, found: Sequence[Match]) -> Mapping[str, _Default]:
    """By field, those that a move needs."""
    needed = [
        match.column for match in found if match.may_lack or (match.source is None and not _said_afresh(match.column))
    ]
    return {
        column.field: _Default(column, DEFAULT.replace("{number}", str(number)), sql.dialect.encoder(column))
        for number, column in enumerate(needed)
    }


def _value(
    sql: QueueSQL, match: Match, destination: Destination, defaults: Mapping[str, _Default], *, single: bool
) -> _Value:
    column = match.column
    if match.source is not None:
        own = sql.qualified(match.source)
        expression = f"COALESCE({own}, :{defaults[column.field].name})" if match.may_lack else own
        return _Value(column, expression, of_row=True)
    said = _said_afresh(column)
    if not said:
        return _Value(column, f":{defaults[column.field].name}")
    theirs = attrs.evolve(sql, spec=destination.spec)
    now = _now(theirs, column) if "{now}" in said else ""
    headers = sql.given("headers", singly=single)
    return _Value(column, fill(said, {"now": now, "headers": headers}), of_row="{headers}" in said and not single)


def _said_afresh(column: ColumnSpec) -> str | None:
    """What a move writes into a column by its role, where the row's own value does not go along."""
    said = column.role.fact.writes.dead_letter if column.role else None
    return None if said == "NULL" else said


def _now(sql: QueueSQL, column: ColumnSpec) -> str:
    return sql.dialect.now(column) if isinstance(sql.spec.clock, DatabaseClock) else f":{NOW}"


#: The headers of a dead letter: why it is one, which queue it comes from, and after how many attempts.
REASON, SOURCE, ATTEMPTS = "dead-letter-reason", "dead-letter-source", "dead-letter-attempts"

#: The text of headers that could not be read, for they cannot stand beside those.
FORMER_HEADERS = "dead-letter-headers"


class DeadLetters:
    """How one queue's rows become dead letters.

    `columns` are what the handler reads of a row, its headers among them; `cap` is the most attempts (None: no cap).
    `notify` are the calls that wake other programs' consumers of the destination.
    """

    def __init__(
        self,
        sql: QueueSQL,
        destination: Destination,
        *,
        columns: Sequence[ColumnSpec],
        group: str | None = None,
        cap: int | None = None,
        notify: Sequence[Call] = (),
    ) -> None:
        dialect, spec = sql.dialect, sql.spec
        own, theirs = spec.role(Role.HEADERS), destination.spec.role(Role.HEADERS)
        due = destination.spec.role(Role.RETRY_AFTER)
        self.notify = notify
        self._moving = moving(sql, destination)
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
        """The row's headers with why it is there, as the destination holds them."""
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
