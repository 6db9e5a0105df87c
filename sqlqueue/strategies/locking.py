"""How a key is locked by the database, and its row then taken, in one statement."""

from collections.abc import Callable, Sequence

from sqlqueue.column import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Statement, fill
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.taking import take
from sqlqueue.strategies.waiting import found_in_one_walk, waiting, waiting_rows
from sqlqueue.words import Words

# A key is locked and its row then taken, all in one statement: `taken` reads the row anew, so that one which was worked
# off between this statement's beginning and its lock is not taken. The key's number comes back in any case, for then
# its lock must be released. No more locks are taken than asked for: the server tries candidates until it has them.
CLAIM = """
WITH {held}_candidates AS MATERIALIZED (
    {candidates}
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE {try_lock}
    LIMIT :limit
),
_taken({names}) AS (
    {taken}
)
SELECT {taken_names}, _locked.number FROM {relaxed}
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE
"""

# The same where of the candidates that share a key the first is tried alone: in a batch, for a session may lock a key
# twice, and in key order, for the first may fail and its lock go while others of its key are tried.
CLAIM_FIRSTS = """
WITH {held}_candidates AS MATERIALIZED (
    {candidates}
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE {try_lock}
    LIMIT :limit
),
_taken({names}) AS (
    {taken}
)
SELECT {taken_names}, _locked.number FROM {relaxed}
CROSS JOIN _locked
LEFT JOIN _taken ON {taken_id} = {locked_id}
ORDER BY {taken_id} IS NULL
"""

# An array, for the rows are then looked up by their ids whatever the planner thinks of their number.
OF_BATCH = "ANY (ARRAY(SELECT _locked.id FROM _locked))"
OF_ONE = "(SELECT _locked.id FROM _locked)"

# What every session of the database holds takes three times as long to find out as to try some locks in vain, so this
# is done where those that were tried were all held.
HELD = """
_held AS MATERIALIZED (
    {locked_numbers}
),

"""

# Where rows are not found in one walk.
CANDIDATES = """
SELECT {id} AS id, {number} AS number FROM {table}
JOIN (
    {waiting}
) AS _waiting ON {id} = _waiting.id
ORDER BY {claim_order}
"""

NOT_HELD = "{number} NOT IN (SELECT number FROM _held)"
NOT_HELD_NOW = "{number} NOT IN ({locked_numbers})"

#: Candidates of a claim of one row, and further ones for each row of a batch: others may lock some between the
#: statement's beginning and its own try, and hold some that they have not settled.
MOST, FURTHER = 32, 2

#: So many, not for the planner to know: on a table without statistics it takes fewer rows to be due than these, and
#: sorts all there are instead of walking along the index (20,000 rows: 19 ms a claim against 2).
HIDDEN = "(SELECT {most})"

LOCK = """
SELECT {try_lock} AS locked
"""

UNLOCK = """
SELECT {unlock} AS unlocked
"""

UNLOCK_BATCH = """
SELECT {unlock} AS unlocked
{from_given}
"""

#: How the locks of a batch are given to a statement.
NUMBER = ColumnSpec(field="number", type=int)


def candidates(words: Words, number: str, batch: int, conditions: Sequence[str]) -> str:
    most = MOST + FURTHER * (batch - 1)
    names = {"id": words.column(Role.ID), "number": number}
    if found_in_one_walk(words):
        select = fill("{id} AS id, {number} AS number", names)
        return waiting_rows(words, select, fill(HIDDEN, {"most": str(most)}), conditions, locked=False)
    shape = {
        **names,
        "table": words.dialect.table(words.spec),
        "waiting": waiting(words, most, conditions, locked=False),
        "claim_order": ", ".join(words.order()),
    }
    return fill(CANDIDATES, shape)


def claim_of(
    words: Words, reading: Reading, batch: int, *, capped: bool, by_key: bool = False, held: str = ""
) -> Callable[[str, str], Statement]:
    """Makes the claim of one row or of a batch, of its name and the candidates. `held`: what else it looks up first."""
    dialect = words.dialect
    names = [f"c{place}" for place in range(reading.width)]

    def make(name: str, rows: str) -> Statement:
        return words.statement(
            name,
            CLAIM if batch == 1 and not by_key else CLAIM_FIRSTS,
            width=reading.width + 1,
            held=held,
            candidates=rows,
            try_lock=dialect.try_lock("number"),
            names=", ".join(names),
            taken=take(words, reading, capped=capped, candidate=OF_ONE if batch == 1 else OF_BATCH),
            taken_names=", ".join(f"_taken.{name}" for name in names),
            taken_id=f"_taken.{names[reading.id_at]}",
            locked_id=dialect.read(words.spec.id, "_locked.id"),
            relaxed=dialect.relaxed,
        )

    return make


def lock(words: Words) -> Statement:
    """The statement that tries a lock by its number."""
    return words.statement("lock again", LOCK, width=1, try_lock=words.dialect.try_lock(":number"))


def unlock(words: Words, batch: int) -> Statement:
    """The statement that releases a lock, or those of a batch."""
    if batch == 1:
        return words.statement("unlock", UNLOCK, width=1, unlock=words.dialect.unlock(":number"))
    return words.settlement(
        "unlock", UNLOCK_BATCH, {"number": NUMBER}, unlock=words.dialect.unlock(words.given("number"))
    )
