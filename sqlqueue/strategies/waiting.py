"""The rows that a claim may take: those waiting, in claim order, locked where the database has row locks."""

from collections.abc import Sequence

from sqlqueue.column import Role
from sqlqueue.sql import fill
from sqlqueue.strategies.levels import by_level, has_levels, in_levels
from sqlqueue.words import Words, also, every

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


def onward(words: Words) -> str:
    """The condition that a row stands at the bookmark or behind it, in claim order; by ids alone, behind it: a row that
    came back at once, and that nothing hides, would be the first again."""
    keys, values = words.order(), [":from_id"]
    due = words.spec.role(Role.RETRY_AFTER)
    if due is None:
        return f"{keys[0]} > {values[0]}"
    value = ":from_retry_after"
    values.insert(0, f"COALESCE({value}, {words.dialect.earliest(due)})" if due.optional else value)
    return f"({', '.join(keys)}) >= ({', '.join(values)})"


def unleased(words: Words) -> str:
    """The condition that nobody holds a lease on a row."""
    lease, spec = words.column(Role.LEASE), words.spec.role(Role.LEASE)
    assert spec is not None
    return f"({lease} IS NULL OR {words.dialect.ended(lease, spec, words.now(Role.LEASE))})"


def unless_passed_over(words: Words) -> str:
    """The condition that no failed row of its key holds a row back; the failed row itself is free to come."""
    dialect, spec = words.dialect, words.spec
    key = spec.role(Role.PARTITION_KEY)
    assert key is not None
    name = words.qualified(key)
    held = dialect.any_of(key, name, "passed_keys")
    return f"({name} IS NULL OR NOT {held} OR {dialect.any_of(spec.id, words.qualified(spec.id), 'passed_ids')})"


def in_key_order(words: Words) -> list[str]:
    """The conditions that no failed row of its key holds a row back, neither one of this consumer nor of another.

    Other consumers' rows are known by what they wrote: an attempt, and when to try again. Such a row goes before the
    others of its key, though the claim order has it behind them. Where no row may be without a due time those are too
    many to look at, and priorities go before keys: there order by key holds in one consumer.
    """
    conditions = [unless_passed_over(words)]
    due = words.spec.role(Role.RETRY_AFTER)
    if due is None or not due.optional or not words.spec.has(Role.ATTEMPT) or words.spec.has(Role.PRIORITY):
        return conditions
    key = words.column(Role.PARTITION_KEY)
    failed = [
        f"{words.zero(Role.ATTEMPT)} > 0",
        f"{words.moment(Role.RETRY_AFTER)} > {words.dialect.earliest(due)}",
    ]
    parts = {
        "key": key,
        "table": words.dialect.table(words.spec),
        "failed": every(failed),
        "unfinished": every([*words.unfinished(), f"{key} IS NOT NULL"]),
    }
    return [*conditions, fill(NO_OTHER_FAILED, parts)]


def claimable(words: Words) -> list[str]:
    """The conditions that a row is to be worked off, and due."""
    spec = words.spec.role(Role.RETRY_AFTER)
    if spec is None:
        return words.unfinished()
    due = words.dialect.due(words.moment(Role.RETRY_AFTER), spec, words.now(Role.RETRY_AFTER))
    return [*words.unfinished(), f"({' OR '.join(due)})" if len(due) > 1 else due[0]]


def waiting(words: Words, most: int, conditions: Sequence[str], *, locked: bool = True) -> str:
    """The ids of the first `most` rows, in claim order, that are due and meet the strategy's `conditions`.

    `locked`: where the database has row locks, they are locked and those that others have locked passed over.
    """
    if not has_levels(words):
        return _in_order(words, most, words.order(), conditions, locked)
    # Within a priority the order goes on by due time and id.
    return by_level(words, _in_order(words, most, words.order()[1:], [in_levels(words), *conditions], locked), most)


def found_in_one_walk(words: Words) -> bool:
    """Whether one walk along the index finds the rows in claim order."""
    return not has_levels(words) and len(_due_ranges(words)) == 1


def waiting_rows(words: Words, select: str, most: int | str, conditions: Sequence[str], *, locked: bool = True) -> str:
    """As `waiting`, where rows are found in one walk, but with what `select` lists of each."""
    return fill(
        WAITING,
        {
            "table": words.dialect.table(words.spec),
            "select": select,
            "claimable": every([*claimable(words), *conditions]),
            "claim_order": ", ".join(words.order()),
            "most": str(most),
            "skip_locked": words.dialect.skip_locked if locked else "",
        },
    )


def _due_ranges(words: Words) -> Sequence[str | None]:
    spec = words.spec.role(Role.RETRY_AFTER)
    if spec is None:
        return (None,)
    return words.dialect.due(words.moment(Role.RETRY_AFTER), spec, words.now(Role.RETRY_AFTER))


def _in_order(words: Words, most: int, order: Sequence[str], conditions: Sequence[str], locked: bool) -> str:
    ranges = _due_ranges(words)
    names = [f"key_{number}" for number in range(len(order) - 1)]
    keys = [f"{key} AS {name}" for key, name in zip(order, names, strict=False)]
    merge = len(ranges) > 1
    selects = [
        fill(
            WAITING,
            {
                "table": words.dialect.table(words.spec),
                "select": f"{words.column(Role.ID)} AS id" + (also(keys) if merge else ""),
                "claimable": every([*words.unfinished(), *([condition] if condition else []), *conditions]),
                "claim_order": ", ".join(order),
                "most": str(most),
                "skip_locked": words.dialect.skip_locked if locked else "",
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
