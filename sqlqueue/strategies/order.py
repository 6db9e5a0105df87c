"""The rows that a claim may take, in claim order: the SELECT that finds them, and the statement that takes one of them.

With priorities beside rows scheduled ahead the claim's index is entered anew for each priority (a loose index scan): in
the order of priority, due time and id the rows that one priority has scheduled ahead stand before the due ones of the
next, so a claim that only walked the index would read all of them.
"""

from collections.abc import Sequence

from sqlqueue.queue_sql import QueueSQL, also, every
from sqlqueue.roles import Role
from sqlqueue.sql import fill
from sqlqueue.strategies.plan import QueuePlan, Reading, count

# The priorities there are, smallest first, each found by one step into the index; no more than are asked for. A NULL,
# in a column that was declared to have none, is passed over: it would stand before them all, or behind.
WITH_PRIORITIES = """
WITH RECURSIVE _levels(priority) AS (
    SELECT * FROM (
        SELECT {rank} FROM {table}
        WHERE {any}
        ORDER BY {rank}
        LIMIT 1
    ) AS _first_level
    UNION ALL
    SELECT (
        SELECT {rank} FROM {table}
        WHERE {further}
        ORDER BY {rank}
        LIMIT 1
    ) FROM _levels
    WHERE _levels.priority IS NOT NULL
)
{select}
"""

# In claim order, which the dialect sees to.
FOUND = """
{each}
LIMIT {most}
"""


def has_priorities(sql: QueueSQL) -> bool:
    """Whether rows have a priority and can be scheduled ahead."""
    return sql.spec.has(Role.PRIORITY) and sql.spec.has(Role.RETRY_AFTER)


def with_priorities(sql: QueueSQL, select: str) -> str:
    """`select`, which may read `_levels`, a table of the priorities in order and a NULL behind them."""
    rank, unfinished = sql.rank(), sql.unfinished()
    return fill(
        WITH_PRIORITIES,
        {
            "table": sql.dialect.table(sql.spec),
            "rank": rank,
            "any": every([*unfinished, f"{rank} IS NOT NULL"]),
            "further": every([*unfinished, of_priority(sql, ">")]),
            "select": select,
        },
    )


def of_priority(sql: QueueSQL, comparison: str = "=") -> str:
    """The condition that a row's priority is that of `_levels`, or compares otherwise to it."""
    return f"{sql.rank()} {comparison} _levels.priority"


def by_priority(sql: QueueSQL, rows: str, most: int) -> str:
    """The first `most` ids that `rows`, a SELECT of ids that names `_levels`, finds for the priorities in turn."""
    found = fill(FOUND, {"each": sql.dialect.each_priority(sql.spec, rows, sql.order()), "most": str(most)})
    return with_priorities(sql, found)


# The rows that wait, where one walk along the claim's index finds them.
WAITING = """
SELECT {select} FROM {table}
WHERE {claimable}
ORDER BY {claim_order}
LIMIT {most}
{skip_locked}
"""

# Where due rows lie in several ranges of the index, the first of each range are brought into one order.
MERGED = """
SELECT id FROM (
    {ranges}
) AS _ranges
ORDER BY {key_names}
LIMIT {most}
"""

RANGE = """
SELECT * FROM (
    {waiting}
) AS _range_{number}
"""

# Read once for a claim, along the claim's own index: rows that were given a time are few beside the others.
NO_OTHER_FAILED = """
({key} IS NULL OR ({failed}) OR {key} NOT IN (
    SELECT {key} FROM {table}
    WHERE {unfinished} AND {failed}
))
"""


def onward(sql: QueueSQL) -> str:
    """The condition that a row stands at the resume point or behind it, in claim order; by ids alone, behind it: a row
    that came back at once, and that nothing hides, would be the first again."""
    keys, values = sql.order(), [":from_id"]
    due = sql.spec.role(Role.RETRY_AFTER)
    if due is None:
        return f"{keys[0]} > {values[0]}"
    value = ":from_retry_after"
    values.insert(0, f"COALESCE({value}, {sql.dialect.earliest(due)})" if due.optional else value)
    return f"({', '.join(keys)}) >= ({', '.join(values)})"


def unleased(sql: QueueSQL) -> str:
    """The condition that nobody holds a lease on a row."""
    lease, spec = sql.column(Role.LEASE), sql.spec.role(Role.LEASE)
    assert spec is not None
    return f"({lease} IS NULL OR {sql.dialect.ended(lease, spec, sql.now(Role.LEASE))})"


def unless_passed_over(sql: QueueSQL) -> str:
    """The condition that no failed row of its key holds a row back; the failed row itself is free to come."""
    dialect, spec = sql.dialect, sql.spec
    key = spec.role(Role.PARTITION_KEY)
    assert key is not None
    name = sql.qualified(key)
    held = dialect.any_of(key, name, "passed_keys")
    return f"({name} IS NULL OR NOT {held} OR {dialect.any_of(spec.id, sql.qualified(spec.id), 'passed_ids')})"


def in_key_order(sql: QueueSQL) -> list[str]:
    """The conditions that no failed row of its key holds a row back, neither one of this consumer nor of another.

    Other consumers' rows are known by what they wrote: an attempt, and when to try again. Such a row goes before the
    others of its key, though the claim order has it behind them. Where no row may be without a due time those are too
    many to look at, and priorities go before keys: there order by key holds in one consumer.
    """
    conditions = [unless_passed_over(sql)]
    due = sql.spec.role(Role.RETRY_AFTER)
    if due is None or not due.optional or not sql.spec.has(Role.ATTEMPT) or sql.spec.has(Role.PRIORITY):
        return conditions
    key = sql.column(Role.PARTITION_KEY)
    failed = [
        f"{sql.zero(Role.ATTEMPT)} > 0",
        f"{sql.moment(Role.RETRY_AFTER)} > {sql.dialect.earliest(due)}",
    ]
    parts = {
        "key": key,
        "table": sql.dialect.table(sql.spec),
        "failed": every(failed),
        "unfinished": every([*sql.unfinished(), f"{key} IS NOT NULL"]),
    }
    return [*conditions, fill(NO_OTHER_FAILED, parts)]


def claimable(sql: QueueSQL) -> list[str]:
    """The conditions that a row is to be worked off, and due."""
    spec = sql.spec.role(Role.RETRY_AFTER)
    if spec is None:
        return sql.unfinished()
    due = sql.dialect.due(sql.moment(Role.RETRY_AFTER), spec, sql.now(Role.RETRY_AFTER))
    return [*sql.unfinished(), f"({' OR '.join(due)})" if len(due) > 1 else due[0]]


def waiting(sql: QueueSQL, most: int, conditions: Sequence[str], *, locked: bool = True) -> str:
    """The ids of the first `most` rows, in claim order, that are due and meet the strategy's `conditions`.

    `locked`: where the database has row locks, they are locked and those that others have locked passed over.
    """
    if not has_priorities(sql):
        return _in_order(sql, most, sql.order(), conditions, locked)
    # Within a priority the order goes on by due time and id.
    return by_priority(sql, _in_order(sql, most, sql.order()[1:], [of_priority(sql), *conditions], locked), most)


def found_in_one_walk(sql: QueueSQL) -> bool:
    """Whether one walk along the index finds the rows in claim order."""
    return not has_priorities(sql) and len(_due_ranges(sql)) == 1


def waiting_rows(sql: QueueSQL, select: str, most: int | str, conditions: Sequence[str], *, locked: bool = True) -> str:
    """As `waiting`, where rows are found in one walk, but with what `select` lists of each."""
    return fill(
        WAITING,
        {
            "table": sql.dialect.table(sql.spec),
            "select": select,
            "claimable": every([*claimable(sql), *conditions]),
            "claim_order": ", ".join(sql.order()),
            "most": str(most),
            "skip_locked": sql.dialect.skip_locked if locked else "",
        },
    )


def _due_ranges(sql: QueueSQL) -> Sequence[str | None]:
    spec = sql.spec.role(Role.RETRY_AFTER)
    if spec is None:
        return (None,)
    return sql.dialect.due(sql.moment(Role.RETRY_AFTER), spec, sql.now(Role.RETRY_AFTER))


def _in_order(sql: QueueSQL, most: int, order: Sequence[str], conditions: Sequence[str], locked: bool) -> str:
    ranges = _due_ranges(sql)
    names = [f"key_{number}" for number in range(len(order) - 1)]
    keys = [f"{key} AS {name}" for key, name in zip(order, names, strict=False)]
    merge = len(ranges) > 1
    selects = [
        fill(
            WAITING,
            {
                "table": sql.dialect.table(sql.spec),
                "select": f"{sql.column(Role.ID)} AS id" + (also(keys) if merge else ""),
                "claimable": every([*sql.unfinished(), *([condition] if condition else []), *conditions]),
                "claim_order": ", ".join(order),
                "most": str(most),
                "skip_locked": sql.dialect.skip_locked if locked else "",
            },
        )
        for condition in ranges
    ]
    if not merge:
        return selects[0]
    numbered = [fill(RANGE, {"waiting": text, "number": str(number)}) for number, text in enumerate(selects)]
    return fill(
        MERGED, {"ranges": "\nUNION ALL\n".join(numbered), "key_names": ", ".join([*names, "id"]), "most": str(most)}
    )


# One row is taken by its id, once the lock on its key is held: for advisory.py and key_locks.py.
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
READ = """
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
CLEARED_BY_COUNT = "{attempt} > :cap + 1"


def take(plan: QueuePlan, reading: Reading, candidate: str) -> str:
    """The statement that takes the row whose id is `candidate`, an expression, once the lock on its key is held: while
    it is still claimable, and counting the attempt."""
    sql, counted = plan.sql, count(plan, cleared=CLEARED_BY_COUNT, to_spent=True)
    taking = sql.assignments("claim", values={"counted": counted or ""})
    names = {"table": sql.dialect.table(sql.spec), "id": sql.column(Role.ID)}
    still = {"candidate": candidate, "claimable": every(claimable(sql)), "skip_locked": sql.dialect.skip_locked}
    rest = {"free": fill(FREE, {**names, **still}), "returned": reading.select(), "taking": ", ".join(taking)}
    return fill(TAKE if taking else READ, {**names, **rest})
