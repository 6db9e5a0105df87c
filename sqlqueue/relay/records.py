"""The records of what was published: written before a message is sent, marked once it is processed, sent once more
until then, and pruned."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.codec import Codec, decode_headers
from sqlqueue.connection import Connection, Pool, Row
from sqlqueue.delivery import decode_column
from sqlqueue.dialect import Dialect
from sqlqueue.enqueue import RowMaker
from sqlqueue.errors import DeclarationError, DecodeError, EncodeError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.relay.record_table import check_declared, makes_id, to_text
from sqlqueue.roles import Role
from sqlqueue.schema import check_statements, check_table
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import insert

FIND = """
SELECT {own_id} AS id, {destination} AS destination, {processed} AS processed FROM {table}
{joined_given}
WHERE {id} = {given_id}
"""

PROCESSED = "CASE WHEN {unprocessed} THEN 0 ELSE 1 END"

# Only once, so that the moment is that of the first time.
MARK = """
UPDATE {table}
SET {processed_at} = {now}
{from_given}
WHERE {id} = {given_id} AND {unprocessed}
RETURNING {id}
"""

# Where no column keeps it.
FORGET = """
DELETE FROM {table}
{using_given}
WHERE {id} = {given_id}
RETURNING {id}
"""

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

#: Records that a database may write by one statement, whose cost grows with their square.
MOST_AT_ONCE = 16

#: Records that are read, and sent, at a time.
PAGE = 100

#: Records that one transaction prunes.
PRUNE_BATCH = 1000

#: What a message is made of, beside the id.
ROLES = (Role.GROUP, Role.PAYLOAD, Role.PARTITION_KEY, Role.HEADERS)


@attrs.frozen
class Record:
    """What is known of a message's record: its id, the name that the message was sent to, and whether a consumer has
    processed it."""

    id: Any
    name: str | None
    processed: bool


class Records:
    """Writes, finds, marks and prunes the records of one table. Raises `DeclarationError` for one that cannot."""

    def __init__(self, dialect: Dialect, spec: TableSpec, codec: Codec) -> None:
        check_declared(spec)
        self.dialect, self.spec, self.codec = dialect, spec, codec
        self.sql = QueueSQL(dialect, spec, grouped=False)
        name = spec.role(Role.GROUP)
        assert name is not None
        #: The column that holds where a message was sent to.
        self.name: ColumnSpec = name
        #: The condition that holds for records that nobody has processed.
        keeps = spec.has(Role.PROCESSED_AT)
        self.unprocessed = f"{self.sql.column(Role.PROCESSED_AT)} IS NULL" if keeps else "TRUE"

    # -- write ------------------------------------------------------------------------------------------------

    def write(self, connection: Connection, messages: Sequence[OutgoingMessage]) -> Sequence[Any]:
        """Insert a record for each message, all or none; their ids.

        Raises `EncodeError` or `DeclarationError` for a message that the table has no place for.
        """
        makers = {message.destination: self._maker(message.destination) for message in messages}
        statement = self.insert if len(messages) <= MOST_AT_ONCE else attrs.evolve(self.insert, fresh=True)
        calls = []
        for message in messages:
            maker = makers[message.destination]
            row = maker.row(message.payload, key=message.key, headers=message.headers or None)
            calls.append(Call(statement, maker.named(row)))
        return [self._id(id) for ((id,),) in connection.run(calls)]

    def _id(self, stored: Any) -> Any:
        return decode_column(self.dialect.decoder(self.spec.id), self.spec.id, stored)

    def _maker(self, name: str | None) -> RowMaker:
        if name is None and not self.name.optional:
            raise EncodeError(
                f"table {self.spec.full_name!r} of records: the message names no destination, and column "
                f"{self.name.field!r} takes no NULL; name one, or declare it as str | None"
            )
        return RowMaker(
            queue=self.spec.full_name, spec=self._filled, group=name, codec=self.codec, dialect=self.dialect
        )

    @cached_property
    def _filled(self) -> TableSpec:
        """The table, whose rows need not name what a message may lack, nor an id that we can make."""
        own = {self.name: None, **({self.spec.id: attrs.Factory(uuid4)} if makes_id(self.spec) else {})}
        columns = [attrs.evolve(one, default=own[one]) if one in own else one for one in self.spec.columns]
        return attrs.evolve(self.spec, columns=columns)

    @cached_property
    def insert(self) -> Statement:
        maker = self._maker("")
        return insert(self.dialect, self.spec, maker.columns, delay=maker.delay)

    # -- find and mark ----------------------------------------------------------------------------------------

    def find(self, connection: Connection, ids: Sequence[Any]) -> Sequence[Record | None]:
        """The records of these ids, None for one that is not there."""
        (found,) = connection.run([Call(self.finding, {"id": self._encoded(ids)})])
        records = [Record(self._id(id), name, bool(processed)) for id, name, processed in found]
        by_id = {record.id: record for record in records}
        return [by_id.get(id) for id in ids]

    @cached_property
    def finding(self) -> Statement:
        finding = self.sql.settlement(
            "find records",
            FIND,
            {"id": self.spec.id},
            own_id=self.dialect.read(self.spec.id, self.sql.column(Role.ID)),
            destination=self.dialect.read(self.name, self.sql.qualified(self.name)),
            processed=fill(PROCESSED, {"unprocessed": self.unprocessed}),
        )
        return attrs.evolve(finding, width=3, writes=False)

    def mark(self, connection: Connection, ids: Sequence[Any]) -> int:
        """Mark these records as processed; how many were not yet."""
        now = self.sql.encoder(Role.PROCESSED_AT)(self.spec.host_clock.now())
        (marked,) = connection.run([Call(self.marking, {"id": self._encoded(ids), "now_processed_at": now})])
        return len(marked)

    @cached_property
    def marking(self) -> Statement:
        given = {"id": self.spec.id}
        if not self.spec.has(Role.PROCESSED_AT):
            return self.sql.settlement("forget records", FORGET, given)
        return self.sql.settlement(
            "mark records",
            MARK,
            given,
            processed_at=self.sql.bare(Role.PROCESSED_AT),
            now=self.sql.now(Role.PROCESSED_AT),
            unprocessed=self.unprocessed,
        )

    def _encoded(self, ids: Sequence[Any]) -> list[Any]:
        return [self.sql.encoder(Role.ID)(id) for id in ids]

    # -- prune ------------------------------------------------------------------------------------------------

    def prune(self, pool: Pool, before: datetime, limit: int = PRUNE_BATCH) -> int:
        """Delete the records that were processed until `before`, in transactions of `limit`; how many there were."""
        values = {"before": self.sql.now_encoder(Role.PROCESSED_AT)(before)}
        count = 0
        for statement in self.pruning(limit):
            deleted = limit
            while deleted == limit:
                with pool.connection() as connection:
                    deleted = len(connection.run([Call(statement, values)])[0])
                count += deleted
        return count

    def pruning(self, limit: int = PRUNE_BATCH) -> Sequence[Statement]:
        """A statement for each range of moments; all of them find every record processed until `:before`."""
        column = self.spec.role(Role.PROCESSED_AT)
        if column is None:
            raise DeclarationError(
                f"table {self.spec.full_name!r} of records keeps none that is processed; there is nothing to prune "
                "without a column.processed_at()"
            )
        return [
            self.sql.statement(
                "prune records",
                PRUNE,
                width=1,
                old=old,
                limit=str(limit),
                processed_at=self.sql.qualified(column),
                skip_locked=self.dialect.skip_locked,
            )
            for old in self.dialect.due(self.sql.qualified(column), column, ":before")
        ]

    def now(self, connection: Connection) -> datetime:
        """What time it is for the table."""
        by_database = isinstance(self.spec.clock, DatabaseClock)
        return self.dialect.read_clock(connection) if by_database else self.spec.host_clock.now()


class Unprocessed:
    """Reads a table's records that nobody has processed, in the order of their ids, as the messages that they were
    written for. `names`: those of these destinations, None for all."""

    def __init__(self, records: Records, names: Collection[str] | None) -> None:
        self._records, self._names = records, names
        dialect, spec, sql = records.dialect, records.spec, records.sql
        self._columns = [spec.id, *(column for role in ROLES if (column := spec.role(role)) is not None)]
        self._decoders = [dialect.decoder(column) for column in self._columns]
        id, read = sql.column(Role.ID), [dialect.read(column, sql.qualified(column)) for column in self._columns]
        listed = [] if names is None else [dialect.any_of(records.name, sql.qualified(records.name), "names")]
        conditions = [records.unprocessed, *listed]
        self.newest = sql.statement(
            "find the newest record", NEWEST, width=1, writes=False, newest=read[0], conditions=every(conditions)
        )
        self.first, self.next = (
            sql.statement(
                name,
                UNPROCESSED,
                width=len(self._columns) + 1,
                writes=False,
                columns=", ".join(read),
                conditions=every([*conditions, *beyond]),
            )
            for name, beyond in (
                ("the first unprocessed records", []),
                ("the next unprocessed records", [fill(BEYOND, {"id": id})]),
            )
        )

    def check(self, connection: Connection) -> None:
        """That the database has the table as it is declared; else `SchemaError`."""
        records = self._records
        check_table(records.dialect, connection, records.spec)
        statements = [records.insert, records.finding, records.marking, self.newest, self.first, self.next]
        check_statements(records.dialect, connection, records.spec, statements)

    def pages(self, pool: Pool, limit: int | None) -> Iterator[Sequence[Row]]:
        """What is unprocessed by now, a page at a time, `limit` records at most."""
        encode = self._records.dialect.list_encoder() or list
        values: dict[str, Any] = {"names": encode(list(self._names or ()))}
        with pool.connection() as connection:
            (newest,) = connection.run([Call(self.newest, values)])
        statement, remaining = self.first, limit
        while newest and remaining != 0:
            most = PAGE if remaining is None else min(remaining, PAGE)
            with pool.connection() as connection:
                (rows,) = connection.run([Call(statement, {**values, "newest": newest[0][0], "limit": most})])
            wanted = [row[:-1] for row in rows if row[-1]]
            if wanted:
                yield wanted
            if len(wanted) < most:
                return
            statement, values["after"] = self.next, rows[-1][0]
            remaining = None if remaining is None else remaining - len(rows)

    def message(self, row: Row, header: str) -> OutgoingMessage:
        """A record as the message that it was written for; `DecodeError` where it cannot be read."""
        try:
            columns = zip(self._columns, self._decoders, row, strict=True)
            values = {column.role: decode_column(decode, column, value) for column, decode, value in columns}
            id, payload = to_text(values[Role.ID]), values[Role.PAYLOAD]
            return OutgoingMessage(
                payload=payload.encode() if isinstance(payload, str) else payload,
                destination=values[Role.GROUP],
                key=values.get(Role.PARTITION_KEY),
                headers={**decode_headers(values.get(Role.HEADERS)), header: id},
                id=id,
            )
        except DecodeError as error:
            raise DecodeError(
                f"record {str(row[0])!r} in table {self._records.spec.full_name!r} cannot be sent again: {error}; mend "
                "it, or delete it"
            ) from error
