"""The records that nobody has processed, in the order of their ids, as the messages that they were written for."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sqlqueue.codec import decode_headers
from sqlqueue.connection import Connection, Pool, Row
from sqlqueue.delivery import decode_column
from sqlqueue.errors import DecodeError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.queue_sql import every
from sqlqueue.relay.record_ids import to_text
from sqlqueue.relay.records import Records
from sqlqueue.roles import Role
from sqlqueue.schema import check_statements, check_table
from sqlqueue.sql import Call, Statement, fill

# Those that are written from here on are their publishers' to send.
NEWEST = """
SELECT {newest} AS newest FROM {table}
WHERE {conditions}
ORDER BY {id} DESC
LIMIT 1
"""

# How far to go is no condition: a range with two unknown ends is taken for so short that the primary key would serve,
# past all that are processed.
UNPROCESSED = """
SELECT {columns}, {id} <= :newest AS wanted FROM {table}
WHERE {conditions}
ORDER BY {id}
LIMIT :limit
"""

BEYOND = "{id} > :after"

#: Records that are read, and sent, at a time.
PAGE = 100

#: What a message is made of, beside the id.
ROLES = (Role.GROUP, Role.PAYLOAD, Role.PARTITION_KEY, Role.HEADERS)


class Unprocessed:
    """Reads one table's unprocessed records; `names`: those of these destinations, None for all."""

    def __init__(self, records: Records, names: Collection[str] | None) -> None:
        self._records, self._sql = records, records.sql
        self._columns = [records.spec.id, *(one for role in ROLES for one in [records.spec.role(role)] if one)]
        self._decoders = [records.dialect.decoder(column) for column in self._columns]
        self._names = names
        listed = [records.dialect.any_of(records.name, self._sql.qualified(records.name), "names")]
        self._conditions = [*records.unprocessed, *(listed if names is not None else [])]
        self.newest = self._sql.statement(
            "find the newest record",
            NEWEST,
            width=1,
            writes=False,
            newest=records.dialect.read(records.spec.id, self._sql.column(Role.ID)),
            conditions=every(self._conditions),
        )
        self.first = self._page("the first unprocessed records")
        self.next = self._page("the next unprocessed records", BEYOND)

    def _page(self, name: str, *ranges: str) -> Statement:
        sql, id = self._sql, self._sql.column(Role.ID)
        return sql.statement(
            name,
            UNPROCESSED,
            width=len(self._columns) + 1,
            writes=False,
            columns=", ".join(sql.dialect.read(column, sql.qualified(column)) for column in self._columns),
            conditions=every([*self._conditions, *(fill(one, {"id": id}) for one in ranges)]),
        )

    def check(self, connection: Connection) -> None:
        """That the database has the table as it is declared; else `SchemaError`."""
        records = self._records
        check_table(records.dialect, connection, records.spec)
        check_statements(
            records.dialect,
            connection,
            records.spec,
            [records.insert, records.look, records.settle, self.newest, self.first, self.next],
        )

    def pages(self, pool: Pool, limit: int | None) -> Iterator[Sequence[Row]]:
        """What is unprocessed by now, a page at a time, `limit` records at most."""
        encode = self._records.dialect.list_encoder() or list
        values: dict[str, Any] = {"names": encode(list(self._names or ()))}
        with pool.connection() as connection:
            (newest,) = connection.run([Call(self.newest, values)])
        statement, left = self.first, limit
        while newest and left != 0:
            most = PAGE if left is None else min(left, PAGE)
            with pool.connection() as connection:
                (rows,) = connection.run([Call(statement, {**values, "newest": newest[0][0], "limit": most})])
            wanted = [row[:-1] for row in rows if row[-1]]
            if wanted:
                yield wanted
            if len(wanted) < most:
                return
            statement, values["after"] = self.next, rows[-1][0]
            left = None if left is None else left - len(rows)

    def message(self, row: Row, header: str) -> OutgoingMessage:
        """A record as the message that it was written for; `DecodeError` where it cannot be read."""
        try:
            return self._read(row, header)
        except DecodeError as error:
            raise DecodeError(
                f"record {str(row[0])!r} in table {self._records.spec.full_name!r} cannot be sent again: {error}; mend "
                "it, or delete it"
            ) from error

    def _read(self, row: Row, header: str) -> OutgoingMessage:
        values: dict[Role | None, Any] = {
            column.role: decode_column(decode, column, value)
            for column, decode, value in zip(self._columns, self._decoders, row, strict=True)
        }
        id, payload = to_text(values[Role.ID]), values[Role.PAYLOAD]
        return OutgoingMessage(
            payload=payload.encode() if isinstance(payload, str) else payload,
            destination=values[Role.GROUP],
            key=values.get(Role.PARTITION_KEY),
            headers={**decode_headers(values.get(Role.HEADERS)), header: id},
            id=id,
        )
