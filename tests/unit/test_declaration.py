"""Every mistake in a table's declaration stops at import, and its error names the table, the column and the mend."""

import re
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue import (
    AdvisoryLock,
    ColumnSpec,
    DatabaseClock,
    DeclarationError,
    HostClock,
    Role,
    TableSpec,
    column,
    table,
)
from sqlqueue.spec import spec_of

ID = ColumnSpec(field="id", type=int, role=Role.ID)


def declare(*columns: ColumnSpec, **settings: Any) -> TableSpec:
    return TableSpec(name="jobs", columns=(ID, *columns), **settings)


def refusal(act: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """What the refused declaration says; it is a ValueError as well, for those who know nothing of ours."""
    with pytest.raises(DeclarationError) as caught:
        act(*args, **kwargs)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def of_role(role: Role, field: str | None = None, **rest: Any) -> ColumnSpec:
    kind = (*role.fact.types, str)[0]
    return ColumnSpec(field=field or role.value, type=kind, role=role, optional=role.fact.starts_null, **rest)


# -- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "shop.jobs"])
def test_a_table_name_that_is_empty_or_holds_a_dot_points_to_schema(name: str) -> None:
    """SUITE 8"""
    assert refusal(TableSpec, name=name, columns=(ID,)) == (
        f"table name {name!r}: give the bare name of one table; a schema goes into schema="
    )


@pytest.mark.parametrize("schema", ["", "a.b"])
def test_a_schema_that_is_empty_or_holds_a_dot_is_refused(schema: str) -> None:
    """SUITE 8"""
    assert refusal(declare, schema=schema) == (
        f"table 'jobs': schema={schema!r} is not the name of one schema; give its bare name, or leave schema= out"
    )


@pytest.mark.parametrize("name", ["a\0b", "a\nb", "a\u2028b", "\x7f"])
@pytest.mark.parametrize("place", ["table", "schema", "column"])
def test_a_name_that_cannot_be_printed_is_refused_wherever_it_stands(place: str, name: str) -> None:
    columns = (ID, ColumnSpec(field="x", name=name if place == "column" else "x"))
    settings = {"name": name if place == "table" else "jobs", "schema": name if place == "schema" else None}
    said = refusal(TableSpec, columns=columns, **settings)
    assert said.endswith(f": the name {name!r} holds a character that cannot be printed; rename it")


def test_names_that_people_do_use_are_taken() -> None:
    odd = declare(ColumnSpec(field="größe", name='Größe "in" {cm}: 100%?'), schema="My Schema")
    assert [spec.name for spec in odd.columns] == ["id", 'Größe "in" {cm}: 100%?']
    assert odd.full_name == "My Schema.jobs"


def test_an_empty_column_name_is_refused_by_its_field() -> None:
    """SUITE 9"""
    assert refusal(declare, ColumnSpec(field="body", name="")) == (
        "table 'jobs': field 'body' has an empty column name; leave name= out, or give the column's"
    )


def test_two_fields_that_name_one_column_are_refused() -> None:
    assert refusal(declare, ColumnSpec(field="a", name="x"), ColumnSpec(field="b", name="x")) == (
        "table 'jobs': field 'b' and field 'a' name one column 'x'; leave out one of the two"
    )


def test_a_field_that_is_described_twice_is_refused() -> None:
    assert refusal(declare, ColumnSpec(field="a", name="x"), ColumnSpec(field="a", name="y")) == (
        "table 'jobs': field 'a' is described twice; leave out one of the two"
    )


@pytest.mark.parametrize("field", ["", "order-id", "order id", "1st", "a.b"])
def test_a_field_that_is_no_identifier_is_refused_with_the_way_to_name_the_column(field: str) -> None:
    assert refusal(declare, ColumnSpec(field=field, name="x")) == (
        f"table 'jobs': field {field!r} is no identifier; give the column's name as name= and call the field otherwise"
    )


# -- roles ------------------------------------------------------------------------------------------------------


def test_a_table_without_an_id_is_refused_with_the_mark_that_is_missing() -> None:
    assert refusal(TableSpec, name="jobs", columns=(ColumnSpec(field="body"),)) == (
        "table 'jobs': no column plays the role 'id'; mark one with column.id()"
    )


@pytest.mark.parametrize("role", Role)
def test_two_columns_of_one_role_are_refused_by_both_names(role: Role) -> None:
    """SUITE 9"""
    assert refusal(declare, of_role(role, "one"), of_role(role, "two")) == (
        f"table 'jobs': columns {'id' if role is Role.ID else 'one'!r} and {'one' if role is Role.ID else 'two'!r} "
        f"both play the role {role.value!r}; leave the role to one of them"
    )


@pytest.mark.parametrize("role", [role for role in Role if role.fact.types])
@pytest.mark.parametrize("kind", [int, float, str, bytes, bool, UUID, datetime, date, Decimal, dict, list, object])
def test_a_type_that_cannot_hold_its_role_is_refused_with_those_that_can(role: Role, kind: type) -> None:
    allowed = role.fact.types
    columns = [ColumnSpec(field="x", type=kind, role=role, optional=True)]
    if role is not Role.ID:
        columns.append(ID)
    fits = issubclass(kind, allowed) and (kind is not bool or bool in allowed)
    if fits:
        assert TableSpec(name="jobs", columns=columns).role(role) == columns[0]
        return
    assert refusal(TableSpec, name="jobs", columns=columns) == (
        f"table 'jobs': column 'x' plays the role {role.value!r} and is declared as {kind.__name__}; declare it as one "
        f"of: {', '.join(one.__name__ for one in allowed)}"
    )


@pytest.mark.parametrize("role", [role for role in Role if role.fact.starts_null])
def test_a_role_that_starts_empty_needs_a_type_with_none(role: Role) -> None:
    spec = attrs.evolve(of_role(role), optional=False)
    assert refusal(declare, spec) == (
        f"table 'jobs': column {role.value!r} plays the role {role.value!r}, which is NULL at first; declare it as "
        f"{spec.type.__name__} | None"
    )


def test_a_role_whose_type_is_left_open_is_taken() -> None:
    assert declare(ColumnSpec(field="until", role=Role.LEASE)).has(Role.LEASE)


# -- strategies and clocks --------------------------------------------------------------------------------------


def test_a_lease_on_the_databases_clock_is_refused() -> None:
    """SUITE 184"""
    assert refusal(declare, of_role(Role.LEASE, "until"), clock=DatabaseClock()) == (
        "table 'jobs': the lease in column 'until' is kept by the host's clock, because each settlement names the "
        "expiry that its claim wrote; leave out clock=DatabaseClock(), or the lease column"
    )


def test_the_databases_clock_without_a_lease_is_taken() -> None:
    assert declare(clock=DatabaseClock()).clock == DatabaseClock()


@pytest.mark.parametrize("clock", [DatabaseClock, HostClock, "utc", None, datetime.now])
def test_what_is_no_clock_is_refused_a_class_of_clocks_too(clock: Any) -> None:
    assert refusal(declare, of_role(Role.LEASE), clock=clock) == (
        f"table 'jobs': clock={clock!r} is no clock; give HostClock(), DatabaseClock(), or an object with a now()"
    )


def test_a_lease_beside_an_advisory_lock_is_refused() -> None:
    assert refusal(declare, of_role(Role.LEASE, "until"), advisory_lock="jobs-{id}") == (
        "table 'jobs': column 'until' is a lease, and advisory_lock='jobs-{id}' is given; a row is held by one of "
        "them: leave out the other"
    )


@pytest.mark.parametrize("template", ["jobs-{id", "jobs-id}", "{jobs-{id}", "jobs-{id}}"])
def test_a_key_template_with_a_brace_too_few_is_refused(template: str) -> None:
    """SUITE 51"""
    assert refusal(declare, advisory_lock=template) == (
        f"table 'jobs': advisory_lock={template!r}: a brace without its partner; write a field as {{field}}"
    )


@pytest.mark.parametrize(("template", "named"), [("jobs-{}", ""), ("jobs-{nr}", "nr"), ("{id}-{ id }", " id ")])
def test_a_key_template_that_names_no_field_is_refused_with_the_fields_there_are(template: str, named: str) -> None:
    """SUITE 51"""
    assert refusal(declare, ColumnSpec(field="account"), advisory_lock=template) == (
        f"table 'jobs': advisory_lock={template!r}: {{{named}}} names no field; name one of account, id"
    )


@pytest.mark.parametrize("template", ["jobs-{id}", "{account}-{id}", "one for all"])
def test_a_key_template_that_names_fields_or_none_is_taken(template: str) -> None:
    assert declare(ColumnSpec(field="account"), advisory_lock=template).advisory_lock == AdvisoryLock(template)


@pytest.mark.parametrize("level", ["snapshot", "", "READ UNCOMMITTED"])
def test_an_isolation_level_that_we_do_not_know_is_refused(level: str) -> None:
    assert refusal(declare, isolation=level) == (
        f"table 'jobs': isolation={level!r} is none of READ COMMITTED, REPEATABLE READ, SERIALIZABLE"
    )


# -- lines ------------------------------------------------------------------------------------------------------


def test_fifo_beside_an_advisory_lock_is_refused_with_the_key_that_does_the_same() -> None:
    """SUITE 62"""
    assert refusal(declare, of_role(Role.PARTITION_KEY, "account", fifo=True), advisory_lock="jobs-{id}") == (
        "table 'jobs': column 'account' with fifo=True beside advisory_lock=; leave fifo=True out and put the field "
        "into the key instead, such as advisory_lock='jobs-{account}'"
    )


def test_two_lines_in_one_table_are_refused() -> None:
    said = refusal(declare, of_role(Role.GROUP, "team", fifo=True), of_role(Role.PARTITION_KEY, "account", fifo=True))
    assert said == (
        "table 'jobs': column 'team' with fifo=True beside column 'account' with fifo=True; a row stands in one line "
        "only: leave out one"
    )


def test_only_a_group_or_a_key_makes_a_line() -> None:
    assert refusal(declare, ColumnSpec(field="size", fifo=True)) == (
        "table 'jobs': column 'size' with fifo=True: only a group or a partition key makes a line; leave fifo=True out"
    )


@pytest.mark.parametrize("level", ["repeatable read", "SERIALIZABLE"])
def test_fifo_above_read_committed_is_refused(level: str) -> None:
    """SUITE 159"""
    assert refusal(declare, of_role(Role.GROUP, "team", fifo=True), isolation=level) == (
        f"table 'jobs': column 'team' with fifo=True beside isolation={level!r}; a line is kept by looking twice, "
        "which takes READ COMMITTED: leave isolation= out"
    )


def test_a_line_by_priority_needs_an_attempt_column() -> None:
    columns = [of_role(Role.GROUP, "team", fifo=True), of_role(Role.PRIORITY, "rank")]
    assert refusal(declare, *columns) == (
        "table 'jobs': column 'team' with fifo=True is ordered by priority (column 'rank') and needs an attempt "
        "column, which keeps a row that has begun at the head; mark one with column.attempt()"
    )
    assert declare(*columns, of_role(Role.ATTEMPT)).fifo_column == columns[0]


# -- classes ----------------------------------------------------------------------------------------------------


def test_a_mark_without_an_annotation_is_refused_and_drops_no_other_field() -> None:
    def act() -> None:
        @table("jobs")
        class Job:
            id = column.id()
            body: str

    assert refusal(act).startswith("table 'jobs': ")
    assert re.search(r"\bid\b.* Annotate each column with its type$", refusal(act))


def test_an_annotation_that_names_nothing_known_is_refused_by_that_name() -> None:
    def act() -> None:
        @table("jobs")
        class Job:
            id: int = column.id()
            body: "Missing"  # type: ignore[name-defined]  # noqa: F821

    assert refusal(act) == (
        "table 'jobs': an annotation names 'Missing', which is not known in the class's module; import it there"
    )


@pytest.mark.parametrize("thing", [int, object(), "jobs", None])
def test_what_describes_no_table_is_refused_with_the_decorator(thing: Any) -> None:
    assert refusal(spec_of, thing) == f"{thing!r} describes no table; decorate the class with @table('its_name')"


def test_the_subclass_of_a_table_is_no_table_by_itself() -> None:
    @table("jobs")
    class Job:
        id: int = column.id()

    class Special(Job):
        pass

    assert "describes no table" in refusal(spec_of, Special)
