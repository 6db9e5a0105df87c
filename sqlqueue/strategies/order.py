"""The claim order once more, in Python: a claim returns its rows in none."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from sqlqueue.column import Role
from sqlqueue.dialect import Row
from sqlqueue.moments import readable
from sqlqueue.spec import ColumnSpec
from sqlqueue.words import Words


def positions(returned: Sequence[ColumnSpec], *roles: Role) -> dict[Role, int]:
    """Where the columns that play these roles stand in a row."""
    return {column.role: place for place, column in enumerate(returned) if column.role in roles}


def sort_key(words: Words, returned: Sequence[ColumnSpec]) -> Callable[[Row], Any]:
    """What the claim's ORDER BY compares; a row that is due since ever goes first."""
    places = positions(returned, Role.ID, Role.PRIORITY, Role.RETRY_AFTER)
    id_at, priority_at, due_at = places[Role.ID], places.get(Role.PRIORITY), places.get(Role.RETRY_AFTER)
    if priority_at is None and due_at is None:
        return itemgetter(id_at)
    decode = words.decoder(Role.RETRY_AFTER)

    def key(row: Row) -> tuple[Any, ...]:
        priority = None if priority_at is None else row[priority_at]
        due = None if due_at is None else readable(decode, row[due_at])
        return (0 if priority is None else priority, due is not None, due, row[id_at])

    return key


def in_order(rows: Sequence[Row], key: Callable[[Row], Any]) -> Sequence[Row]:
    """The rows sorted by `key`, whatever their columns hold: one odd row must not spoil a claim."""
    if len(rows) < 2:
        return rows
    try:
        return sorted(rows, key=key)
    except TypeError:  # SQLite keeps values of any type in any column
        return sorted(rows, key=lambda row: [of_any_type(value) for value in _values(key(row))])


def _values(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def of_any_type(value: Any) -> tuple[int, Any]:
    """As SQLite orders values: NULL, numbers, text, bytes."""
    if value is None:
        return 0, None
    for rank, kinds in enumerate(((int, float), str, bytes), 1):
        if isinstance(value, kinds):  # type: ignore[arg-type]
            return rank, value
    return 4, value
