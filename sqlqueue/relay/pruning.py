"""Processed records that are old enough are deleted, some at a time."""

from collections.abc import Sequence
from datetime import datetime

from sqlqueue.connection import Pool
from sqlqueue.errors import DeclarationError
from sqlqueue.relay.records import Records
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement

# The limit stands there itself: a bound one is planned for as a tenth of the table, which is then read whole to find
# them. Those that another program deletes, or marks, at this moment are left to it.
PRUNE = """
WITH _old AS MATERIALIZED (
    SELECT {id} AS id FROM {table}
    WHERE {old}
    ORDER BY {processed_at}
    LIMIT {limit}
    {skip_locked}
)
DELETE FROM {table}
WHERE {id} IN (SELECT id FROM _old)
RETURNING {id}
"""

#: Records that one transaction deletes.
BATCH = 1000


def prunes(records: Records, limit: int = BATCH) -> Sequence[Statement]:
    """A statement for each range of moments, which together find every record processed until `:before`."""
    column = records.spec.role(Role.PROCESSED_AT)
    if column is None:
        raise DeclarationError(
            f"table {records.spec.full_name!r} of records keeps none that is processed; there is nothing to prune "
            "without a column.processed_at()"
        )
    sql = records.sql
    return [
        sql.statement(
            "prune records",
            PRUNE,
            width=1,
            old=old,
            limit=str(limit),
            processed_at=sql.qualified(column),
            skip_locked=records.dialect.skip_locked,
        )
        for old in records.dialect.due(sql.qualified(column), column, ":before")
    ]


def prune(pool: Pool, records: Records, before: datetime, limit: int = BATCH) -> int:
    """Delete the records that were processed until `before`, in transactions of `limit`; how many there were."""
    values = {"before": records.sql.now_encoder(Role.PROCESSED_AT)(before)}
    count = 0
    for statement in prunes(records, limit):
        deleted = limit
        while deleted == limit:
            with pool.connection() as connection:
                deleted = len(connection.run([Call(statement, values)])[0])
            count += deleted
    return count
