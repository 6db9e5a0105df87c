"""The table of what was published: a record for each message, written before it is sent and marked once it is
processed."""

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import uuid4

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.codec import Codec
from sqlqueue.connection import Connection
from sqlqueue.delivery import decode_column
from sqlqueue.dialect import Dialect
from sqlqueue.enqueue import RowMaker
from sqlqueue.errors import EncodeError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.relay.record_table import check_declared, makes_id
from sqlqueue.roles import Role
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

#: Records that a database may write by one statement, whose cost grows with their square.
MOST_AT_ONCE = 16


@attrs.frozen
class Record:
    """What is known of a message's record: its id, the name that the message was sent to, and whether a consumer has
    processed it."""

    id: Any
    name: str | None
    processed: bool


@attrs.frozen
class Records:
    """The records of one table."""

    dialect: Dialect
    spec: TableSpec
    codec: Codec

    def __attrs_post_init__(self) -> None:
        check_declared(self.spec)

    @cached_property
    def sql(self) -> QueueSQL:
        return QueueSQL(self.dialect, self.spec, grouped=False)

    @property
    def name(self) -> ColumnSpec:
        """The column that holds where a message was sent to."""
        column = self.spec.role(Role.GROUP)
        assert column is not None
        return column

    @property
    def unprocessed(self) -> list[str]:
        """Conditions that hold for records that nobody has processed."""
        keeps = self.spec.has(Role.PROCESSED_AT)
        return [f"{self.sql.column(Role.PROCESSED_AT)} IS NULL"] if keeps else ["TRUE"]

    # -- writing ----------------------------------------------------------------------------------------------

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
        written = connection.run(calls)
        return [self._id(id) for ((id,),) in written]

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

    # -- looking and marking ----------------------------------------------------------------------------------

    def find(self, connection: Connection, ids: Sequence[Any]) -> Sequence[Record | None]:
        """The records of these ids, None for one that is not there."""
        (found,) = connection.run([Call(self.look, {"id": self._stored(ids)})])
        records = [Record(self._id(id), name, bool(processed)) for id, name, processed in found]
        by_id = {record.id: record for record in records}
        return [by_id.get(id) for id in ids]

    @cached_property
    def look(self) -> Statement:
        sql = self.sql
        look = sql.settlement(
            "find records",
            FIND,
            {"id": self.spec.id},
            own_id=self.dialect.read(self.spec.id, sql.column(Role.ID)),
            destination=self.dialect.read(self.name, sql.qualified(self.name)),
            processed=fill(PROCESSED, {"unprocessed": every(self.unprocessed)}),
        )
        return attrs.evolve(look, width=3, writes=False)

    def mark(self, connection: Connection, ids: Sequence[Any]) -> int:
        """Have these records processed; how many were not yet."""
        now = self.sql.encoder(Role.PROCESSED_AT)(self.spec.host_clock.now())
        (marked,) = connection.run([Call(self.settle, {"id": self._stored(ids), "now_processed_at": now})])
        return len(marked)

    def _stored(self, ids: Sequence[Any]) -> list[Any]:
        return [self.sql.encoder(Role.ID)(id) for id in ids]

    @cached_property
    def settle(self) -> Statement:
        given = {"id": self.spec.id}
        if not self.spec.has(Role.PROCESSED_AT):
            return self.sql.settlement("forget records", FORGET, given)
        return self.sql.settlement(
            "mark records",
            MARK,
            given,
            processed_at=self.sql.bare(Role.PROCESSED_AT),
            now=self.sql.now(Role.PROCESSED_AT),
            unprocessed=every(self.unprocessed),
        )

    def now(self, connection: Connection) -> datetime:
        """What time it is for the table."""
        by_database = isinstance(self.spec.clock, DatabaseClock)
        return self.dialect.read_clock(connection) if by_database else self.spec.host_clock.now()
