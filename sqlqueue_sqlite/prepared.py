"""A `Statement` made ready for sqlite3, once, and the loop that executes a call."""

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import itemgetter
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
    """`text` with plain question marks, and how the values for them are picked."""

    text: str
    names: tuple[str, ...]
    given: frozenset[str]
    pick: Callable[[Mapping[str, Any]], tuple[Any, ...]]

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
    return Prepared(text=text, names=tuple(names), given=frozenset(statement.given), pick=_picker(names))


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if not names:
        return lambda values: ()
    if len(names) == 1:
        name = names[0]
        return lambda values: (values[name],)
    return itemgetter(*names)


def execute(cursor: sqlite3.Cursor, call: Call) -> list[Row]:
    """The rows of a call: those of its one execution, or of one execution for each given row."""
    prepared = prepare(call.statement)
    if not prepared.given:
        return cursor.execute(prepared.text, prepared.pick(call.values)).fetchall()
    text, rows = prepared.text, []
    for values in prepared.each(call.values):
        rows += cursor.execute(text, values).fetchall()
    return rows


def execute_all(cursor: sqlite3.Cursor, calls: Sequence[Call]) -> list[list[Row]]:
    return [execute(cursor, call) for call in calls]


def is_one_execution(calls: Sequence[Call]) -> bool:
    """Whether the calls are a single statement of SQLite's, which is atomic by itself."""
    return len(calls) == 1 and not calls[0].statement.given


def insert_all(cursor: sqlite3.Cursor, insert: Statement, rows: Sequence[Row], then: Sequence[Call] = ()) -> int:
    """Execute an insert for each row (values in the order of its parameters), then the calls; how many rows are new."""
    prepared = prepare(insert)
    if prepared.names != insert.parameters:  # a value stands in several places
        rows = [prepared.pick(dict(zip(insert.parameters, row, strict=True))) for row in rows]
    cursor.executemany(prepared.text, rows)
    count = cursor.rowcount
    if count:
        execute_all(cursor, then)
    return count
