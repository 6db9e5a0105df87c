"""Hold again: whether a row is still as its claim left it, once what held it was lost."""

from sqlqueue.column import Role
from sqlqueue.sql import Statement, fill
from sqlqueue.words import Words, every

# Unless somebody has worked the row off, or had it meanwhile and counted that.
AGAIN = """
SELECT {id} FROM {table}
WHERE {id} = :id AND {as_it_was}
{skip_locked}
"""

AS_COUNTED = "{counted} = :attempt"


def again(words: Words, name: str, *, counted: str | None = None, skip_locked: str = "") -> Statement:
    """The statement that finds the row as it was. `counted`: the attempts of its claim; what the row shows by itself,
    unless given. `skip_locked` locks it."""
    counted = counted or (words.column(Role.ATTEMPT) if words.spec.has(Role.ATTEMPT) else None)
    as_it_was = [*words.unfinished(), *([fill(AS_COUNTED, {"counted": counted})] if counted else [])]
    return words.statement(
        name, AGAIN, width=1, writes=bool(skip_locked), as_it_was=every(as_it_was), skip_locked=skip_locked
    )
