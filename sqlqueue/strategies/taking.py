"""How a row is taken once the lock on its key is held: while it is still claimable, and counting the attempt."""

from sqlqueue.column import Role
from sqlqueue.sql import fill
from sqlqueue.strategies.counting import count
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.waiting import claimable
from sqlqueue.words import Words, every

TAKE = """
UPDATE {table}
SET {taking}
FROM (
    {free}
) AS _free
WHERE {id} = _free.id
RETURNING {returned}
"""

# Where nothing in the row shows who is in work, there is nothing to write.
LOOK = """
SELECT {returned} FROM {table}
JOIN (
    {free}
) AS _free ON {id} = _free.id
"""

# Passing over what a foreign session has locked.
FREE = """
SELECT {id} AS id FROM {table}
WHERE {id} = {candidate} AND {claimable}
{skip_locked}
"""

# A parked row whose attempts were spent shows two more than the cap; one whose last worker was lost the cap, and one
# more once it was claimed again.
CLEARED = "{attempt} > :cap + 1"


def take(words: Words, reading: Reading, *, capped: bool, candidate: str) -> str:
    """The statement that takes the row whose id is `candidate`, an expression, and reads it."""
    counted = count(words, capped=capped, cleared=CLEARED, to_spent=True)
    taking = [f"{words.bare(Role.ATTEMPT)} = {counted}"] if counted else []
    taking += [f"{words.bare(Role.RUNNING)} = TRUE"] if words.spec.has(Role.RUNNING) else []
    names = {"table": words.dialect.table(words.spec), "id": words.column(Role.ID)}
    free = fill(
        FREE,
        {
            **names,
            "candidate": candidate,
            "claimable": every(claimable(words)),
            "skip_locked": words.dialect.skip_locked,
        },
    )
    return fill(
        TAKE if taking else LOOK, {**names, "free": free, "returned": reading.select(), "taking": ", ".join(taking)}
    )
