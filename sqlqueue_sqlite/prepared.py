"""A `Statement` made ready for sqlite3, once, and what executes its calls."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

import attrs

from sqlqueue.dialect import Row
from sqlqueue.sql import Call, Statement

# Python 3.12.0 to 3.12.3 take `?1` for a name and warn about a sequence, so the numbers go and the values are repeated.
# As in `sqlqueue.sql`, what may hold a question mark without a value is stepped over first.
_NUMBERED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\?(\d+)", re.DOTALL)

# Statements are composed once a queue; the bound only keeps a program that composes without end from growing.
_REMEMBERED = 1024


@attrs.frozen
class Prepared:
    """`text` with plain question marks, and the names of the values for them."""

    text: str
    names: tuple[str, ...]
    given: frozenset[str]

    def pick(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of a call's one execution."""
        return tuple(map(values.__getitem__, self.names))

    def each(self, values: Mapping[str, Any]) -> "zip[tuple[Any, ...]]":
        """The values of each execution of a call with given columns."""
        # Not strict: a value that is the same for all repeats without end.
        return zip(*[values[name] if name in self.given else repeat(values[name]) for name in self.names], strict=False)


# By identity, for hashing a statement reads its whole text. The statement is kept, so its id stays its own.
_prepared: dict[int, tuple[Statement, Prepared]] = {}


def prepare(statement: Statement) -> Prepared:
    """The statement for sqlite3; the same object as long as the statement is the same."""
    found = _prepared.get(id(statement))
    if found is not None:
        return found[1]
    if len(_prepared) >= _REMEMBERED:
        _prepared.clear()
    prepared = _make(statement)
    _prepared[id(statement)] = (statement, prepared)
    return prepared


def _make(statement: Statement) -> Prepared:
    names: list[str] = []

    def unnumber(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return match.group(0)
        names.append(statement.parameters[int(match.group(1)) - 1])
        return "?"

    text = _NUMBERED.sub(unnumber, statement.text)
    return Prepared(text=text, names=tuple(names), given=frozenset(statement.given))


def execute(cursor: sqlite3.Cursor, calls: Sequence[Call]) -> list[list[Row]]:
    """The rows of each call: those of its one execution, or of one execution for each given row."""
    results: list[list[Row]] = []
    for call in calls:
        found = _prepared.get(id(call.statement))
        prepared = prepare(call.statement) if found is None else found[1]
        values = call.values
        if prepared.given:
            rows: list[Row] = []
            for one in prepared.each(values):
                rows += cursor.execute(prepared.text, one).fetchall()
        else:
            rows = cursor.execute(prepared.text, tuple(map(values.__getitem__, prepared.names))).fetchall()
        results.append(rows)
    return results


def insert_all(cursor: sqlite3.Cursor, insert: Statement, rows: Sequence[Row], then: Sequence[Call] = ()) -> int:
    """Execute an insert for each row (values in the order of its parameters), then the calls; how many rows are new."""
    prepared = prepare(insert)
    if prepared.names != insert.parameters:  # a value stands in several places
        rows = [prepared.pick(dict(zip(insert.parameters, row, strict=True))) for row in rows]
    cursor.executemany(prepared.text, rows)
    count = cursor.rowcount
    if count:
        execute(cursor, then)
    return count
