"""The statements that move a row to its dead letter, each of them settling it: whoever is fenced out moves nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.column import Role
from sqlqueue.destination import SET_AFRESH, Destination, Match, matches
from sqlqueue.dialect import Converter
from sqlqueue.spec import ColumnSpec, default_of, makes_default
from sqlqueue.sql import Statement
from sqlqueue.words import Words, also

# It begins anew in its new group: not tried yet, due, and held by nobody.
MOVE_TO_GROUP = """
UPDATE {table}
SET {group} = :dead_letter_group{afresh}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

#: The value of a turn's *now*, as the destination holds moments.
NOW = "dead_letter_now"
GROUP = "dead_letter_group"
DEFAULT = "dead_letter_default_{number}"

#: Roles whose value comes with the move, where the row has none.
GIVEN = (*SET_AFRESH, Role.GROUP)


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


def moving(words: Words, destination: Destination) -> Moving:
    """How a row of the queue that `words` are of goes to its destination; `DeclarationError` where it has no place."""
    spec, lease = words.spec, words.spec.role(Role.LEASE)
    headers = destination.spec.role(Role.HEADERS)
    given = {"id": spec.id}
    given |= {"token": lease} if lease else {}
    given |= {"headers": headers} if headers else {}
    if destination.is_in(spec):
        return _to_group(words, destination, given)
    return _to_table(words, destination, given)


def is_single(words: Words) -> bool:
    """Whether each row is settled by itself, as it is where a delivery holds its connection."""
    return not words.spec.has(Role.LEASE)


def _to_group(words: Words, destination: Destination, given: Mapping[str, ColumnSpec]) -> Moving:
    single = is_single(words)
    statement = words.settlement(
        "move to another group",
        MOVE_TO_GROUP,
        given,
        singly=single,
        group=words.bare(Role.GROUP),
        afresh=also(list(_afresh(words, headers=words.given("headers", singly=single)))),
    )
    return Moving([statement], single, {GROUP: destination.group})


def _afresh(words: Words, *, headers: str) -> Iterator[str]:
    spec = words.spec
    due = spec.role(Role.RETRY_AFTER)
    if due is not None:
        yield f"{words.bare(Role.RETRY_AFTER)} = {'NULL' if due.optional else _now(words, due)}"
    if spec.has(Role.ATTEMPT):
        yield f"{words.bare(Role.ATTEMPT)} = 0"
    if spec.has(Role.LEASE):
        yield f"{words.bare(Role.LEASE)} = NULL"
    if spec.has(Role.HEADERS):
        yield f"{words.bare(Role.HEADERS)} = {headers}"
    yield from words.not_running()


def _to_table(words: Words, destination: Destination, given: Mapping[str, ColumnSpec]) -> Moving:
    dialect, found = words.dialect, matches(words.spec, destination)
    defaults = _defaults(words, found)
    made = {default.name: default.value for default in defaults.values() if makes_default(default.column)}
    single = is_single(words) or bool(made)
    values = [_value(words, match, destination, defaults, single=single) for match in found]
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
        words.settlement("move to another table", template, given, singly=single, **shape) for template in dialect.moves
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


def _defaults(words: Words, found: Sequence[Match]) -> Mapping[str, _Default]:
    """By field, those that a move needs."""
    needed = [
        match.column for match in found if match.may_lack or (match.source is None and match.column.role not in GIVEN)
    ]
    return {
        column.field: _Default(column, DEFAULT.replace("{number}", str(number)), words.dialect.encoder(column))
        for number, column in enumerate(needed)
    }


def _value(
    words: Words, match: Match, destination: Destination, defaults: Mapping[str, _Default], *, single: bool
) -> _Value:
    column = match.column
    if match.source is not None:
        own = words.qualified(match.source)
        expression = f"COALESCE({own}, :{defaults[column.field].name})" if match.may_lack else own
        return _Value(column, expression, of_row=True)
    if column.role is Role.HEADERS:
        return _Value(column, words.given("headers", singly=single), of_row=not single)
    theirs = attrs.evolve(words, spec=destination.spec)
    if column.role is Role.RETRY_AFTER:
        return _Value(column, _now(theirs, column))
    if column.role is Role.ATTEMPT:
        return _Value(column, "0")
    if column.role is Role.RUNNING:
        return _Value(column, "FALSE")
    if column.role is Role.GROUP:
        return _Value(column, f":{GROUP}")
    return _Value(column, f":{defaults[column.field].name}")


def _now(words: Words, column: ColumnSpec) -> str:
    return words.dialect.now(column) if isinstance(words.spec.clock, DatabaseClock) else f":{NOW}"
