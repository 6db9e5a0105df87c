"""The database under test, and what another program finds in it."""

from collections.abc import Sequence
from typing import Any, Protocol

from sqlqueue.queue import Queue
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.sql import fill


class Database(Protocol):
    """One test's database, empty at first, seen as another program sees it."""

    @property
    def url(self) -> str:
        """What `sqlqueue.Broker` takes."""
        ...

    def execute(self, sql: str, *params: object) -> Sequence[tuple[Any, ...]]:
        """Run one statement on a connection of its own and commit; its rows. `?` stands for a value."""
        ...

    def connect(self) -> Any:
        """A connection of the driver's own, in autocommit mode, usable from any thread.

        The suite calls `execute(sql)` on it, without values and BEGIN, COMMIT and ROLLBACK among them, hands it to
        `enqueue(connection=…)`, and leaves it open: close it when the test ends.
        """
        ...


# A look into the table, by id.
SHOWN = """
SELECT {columns} FROM {table}
ORDER BY {id}
"""


def shown(database: Database, queue: Queue, *fields: str) -> list[tuple[Any, ...]]:
    """What these fields hold, in every row by id, as another program finds it, moments as aware UTC."""
    dialect, spec = queue.broker.dialect, queue.spec
    columns = {column.field: column for column in spec.columns}
    asked = [columns[field] for field in fields]
    sql = QueueSQL(dialect, spec, grouped=False)
    text = fill(
        SHOWN,
        {
            "columns": ", ".join(dialect.read(column, sql.qualified(column)) for column in asked),
            "table": dialect.table(spec),
            "id": sql.column(Role.ID),
        },
    )
    decoders = [dialect.decoder(column) or _as_it_is for column in asked]
    return [
        tuple(None if value is None else decode(value) for decode, value in zip(decoders, row, strict=True))
        for row in database.execute(text)
    ]


def stored(queue: Queue, role: Role, value: Any) -> Any:
    """`value` as another program binds it for the column that plays `role`."""
    column = queue.spec.role(role)
    assert column is not None
    encode = queue.broker.dialect.encoder(column) or _as_it_is
    return encode(value)


def _as_it_is(value: Any) -> Any:
    return value
