"""Attempts: what the claim of a row makes of its count."""

from sqlqueue.column import Role
from sqlqueue.sql import fill
from sqlqueue.words import Words

COUNT = "COALESCE({attempt}, 0) + 1"

# A row whose error somebody cleared has spent its attempts: it starts a fresh count. `{cleared}` tells it from a row
# whose last worker was lost, which has spent them as well.
COUNT_AFRESH = "CASE WHEN {cleared} THEN 1 ELSE COALESCE({attempt}, 0) + 1 END"

# Where no lease tells the two apart the count does: one beyond the cap is a row whose last worker was lost, however
# often it is claimed before it is parked.
COUNT_TO_SPENT = """
CASE WHEN {cleared} THEN 1 WHEN {attempt} > :cap THEN {attempt} ELSE COALESCE({attempt}, 0) + 1 END
"""


def count(words: Words, *, capped: bool, cleared: str, to_spent: bool = False) -> str | None:
    """The expression for the attempts with this delivery counted, None where the table does not count.

    `cleared`: the strategy's condition, over `{attempt}`, `{lease}` and `:cap`, for a row that was parked and is put
    back to work. `to_spent`: the count ends at one beyond the cap.
    """
    if not words.spec.has(Role.ATTEMPT):
        return None
    names = {"attempt": words.column(Role.ATTEMPT)}
    if not capped or not words.spec.has(Role.ERROR):
        return fill(COUNT, names)
    if words.spec.has(Role.LEASE):
        names["lease"] = words.column(Role.LEASE)
    return fill(COUNT_TO_SPENT if to_spent else COUNT_AFRESH, {**names, "cleared": fill(cleared, names)}).strip()
