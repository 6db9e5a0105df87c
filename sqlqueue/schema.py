"""The schema: the recommended DDL, and what a consumer checks when it starts."""

import logging
from collections.abc import Mapping, Sequence

from sqlqueue.clock import DatabaseClock
from sqlqueue.destination import Destination, matches
from sqlqueue.dialect import ColumnFacts, Connection, Dialect
from sqlqueue.errors import SchemaError
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Statement

log = logging.getLogger("sqlqueue")

#: How far apart, as a share of the lease, host and database may tell the time.
SKEW = 0.1


def claim_index(dialect: Dialect, spec: TableSpec, *, grouped: bool) -> str | None:
    """The CREATE INDEX that serves the claim order, of one group's queue or of the whole table's.

    None where the primary key serves it.
    """
    sql = QueueSQL(dialect, spec, grouped=grouped)
    keys = [sql.bare(Role.GROUP)] if grouped and not _is_line(spec) else []
    keys += sql.fifo_order(bare=True) if spec.fifo_column else sql.order(bare=True)
    where = sql.open_rows(bare=True)
    if len(keys) == 1 and not where:
        return None
    return dialect.create_index(spec, keys, " AND ".join(where))


def _is_line(spec: TableSpec) -> bool:
    """Whether the group itself is the FIFO key."""
    return spec.fifo_column is not None and spec.fifo_column.role is Role.GROUP


def ddl_statements(dialect: Dialect, spec: TableSpec, *, notify: bool) -> list[str]:
    """All that is recommended for a table: the table, the index of its claim order, with `notify` the trigger."""
    index = claim_index(dialect, spec, grouped=spec.has(Role.GROUP))
    return [
        *dialect.create_table(spec),
        *([index] if index else []),
        *(dialect.create_notify(spec) if notify else ()),
    ]


def check_table(dialect: Dialect, connection: Connection, spec: TableSpec) -> Mapping[str, ColumnFacts]:
    """The database's columns. Raises `SchemaError` where one that the declaration names is missing or does not fit."""
    facts = dialect.describe(connection, spec)
    where = f"table {spec.full_name!r} in {dialect.source}"
    if facts is None:
        raise SchemaError(
            f"{where}: there is no such table; create it with your migrations or Broker.create_tables(): Broker.ddl() "
            "prints the statements"
        )
    # A claim that walks along the values of a column does not find NULL there.
    never_null = [role for role in Role if role.fact.walked] if spec.has(Role.RETRY_AFTER) else []
    never_null += [spec.fifo_column.role] if spec.fifo_column and spec.fifo_column.role else []
    for column in spec.columns:
        fact = facts.get(column.name)
        if fact is None:
            # Any table takes one more column that may be NULL.
            mend = f"; run: {dialect.add_column(spec, column)}" if column.optional else ""
            raise SchemaError(
                f"{where}: there is no column {column.name!r}, which the declaration names in field {column.field!r}; "
                f"the columns are {', '.join(sorted(facts))}{mend}"
            )
        misfit = dialect.misfit(column, fact)
        if misfit:
            role = f", role {column.role.value!r}" if column.role else ""
            raise SchemaError(f"{where}: column {column.name!r}{role}: {misfit}")
        if column.optional or fact.nullable is False or column.role not in never_null:
            continue
        log.warning(
            "%s: column %r may be NULL, but is declared as never NULL: rows with NULL there are never claimed; "
            "declare it as %s | None",
            where,
            column.name,
            getattr(column.type, "__name__", column.type),
        )
    return facts


def check_destination(dialect: Dialect, connection: Connection, spec: TableSpec, destination: Destination) -> None:
    """Raise `SchemaError`, with the column, where the table of the dead letters cannot take rows of this one."""
    if destination.is_in(spec):
        return
    facts = check_table(dialect, connection, destination.spec)
    filled = {match.column.name for match in matches(spec, destination)}
    filled |= {column.name for column in destination.spec.columns if column.generated}
    for name, fact in facts.items():
        if name not in filled and not fact.nullable and not fact.has_default:
            raise SchemaError(
                f"table {destination.spec.full_name!r} in {dialect.source}: column {name!r} takes no NULL and has no "
                f"default, and nothing in the dead letters of table {spec.full_name!r} matches it by role or name; "
                "give it a default, or declare the two columns alike"
            )


def check_statements(
    dialect: Dialect, connection: Connection, spec: TableSpec, statements: Sequence[Statement]
) -> None:
    """Have the server prepare every statement. The driver's error becomes the cause of a `SchemaError`."""
    for one in statements:
        try:
            dialect.check_statement(connection, one)
        except Exception as error:
            raise SchemaError(
                f"table {spec.full_name!r} in {dialect.source}: the database refuses the statement {one.name!r}: "
                f"{error}"
            ) from error


def warn_of_index(
    dialect: Dialect, connection: Connection, spec: TableSpec, claim: Statement, *, grouped: bool
) -> None:
    """Warn where no index serves the claim order, with the statement that creates one."""
    index = claim_index(dialect, spec, grouped=grouped)
    if index is not None and dialect.lacks_index(connection, claim, spec):
        log.warning(
            "table %r in %s: no index serves the claim order, so each claim reads the whole table; run: %s",
            spec.full_name,
            dialect.source,
            " ".join(index.split()),
        )


def warn_of_skew(dialect: Dialect, connection: Connection, spec: TableSpec, lease: float) -> None:
    """Warn where the table's clock and the database's differ. A table on the database's clock needs no check."""
    if isinstance(spec.clock, DatabaseClock):
        return
    apart = abs((dialect.read_clock(connection) - spec.clock.now()).total_seconds())
    if apart > SKEW * lease:
        log.warning(
            "table %r in %s: the host's clock and the database's are %.1f s apart, more than a tenth of the lease of "
            "%.1f s: rows may start late, and hosts that disagree may take each other's leases for ended",
            spec.full_name,
            dialect.source,
            apart,
            lease,
        )
