"""Attempts: what the claim of a row makes of its count."""

from sqlqueue.column import Role
from sqlqueue.sql import fill
from sqlqueue.words import Words

COUNT = "COALESCE({attempt}, 0) + 1"

# A row whose error somebody cleared has spent its attempts: it starts a fresh count. `{cleared}` tells it from a row
# whose last worker was lost, which has spent them as well.
COUNT_AFRESH = "CASE WHEN {cleared} THEN 1 ELSE COALESCE({attempt}, 0) + 1 END"


def count(words: Words, *, capped: bool, cleared: str) -> str | None:
    """The expression for the attempts with this delivery counted, None where the table does not count.

    `cleared`: the strategy's condition, over `{attempt}`, `{lease}` and `:cap`, for a row that was parked and is put
    back to work.
    """
    if not words.spec.has(Role.ATTEMPT):
        return None
    names = {"attempt": words.column(Role.ATTEMPT)}
    if not capped or not words.spec.has(Role.ERROR):
        return fill(COUNT, names)
    if words.spec.has(Role.LEASE):
        names["lease"] = words.column(Role.LEASE)
    return fill(COUNT_AFRESH, {**names, "cleared": fill(cleared, names)})
