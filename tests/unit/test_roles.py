"""One fact per role: complete, in agreement with the markers, and shown in the docs as it is."""

import inspect
from pathlib import Path

import attrs
import pytest

from sqlqueue import Broker, ColumnSpec, TableSpec, column
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import FACTS, NOW, Role, Writes
from sqlqueue.statements import by_advisory_lock, by_lease
from tests.docs.pages import ROOT

TABLES = Path(ROOT) / "docs" / "tables.md"


def shown() -> dict[str, tuple[str, str]]:
    """The rows of the docs' table of roles: what the column does, and what happens without it."""
    text = TABLES.read_text(encoding="utf-8")
    section = text.partition("## Roles")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {row[0].strip(" `"): (row[2].strip(), row[3].strip(" |")) for row in rows}


def test_the_docs_list_exactly_the_roles_with_what_their_facts_say() -> None:
    assert shown() == {role.value: (role.fact.doc, role.fact.without) for role in Role}


def test_the_docs_list_the_roles_in_the_order_of_the_code() -> None:
    assert list(shown()) == [role.value for role in Role]


def test_there_is_one_fact_for_each_role() -> None:
    assert list(FACTS) == list(Role)


@pytest.mark.parametrize("role", Role)
def test_each_role_has_a_marker_of_its_name_whose_default_is_that_of_the_fact(role: Role) -> None:
    made = getattr(column, role.value)()
    assert made.metadata[column.MARK].role is role
    assert made._default is role.fact.default
    assert ("fifo" in inspect.signature(getattr(column, role.value)).parameters) is role.fact.fifo


@pytest.mark.parametrize("role", Role)
def test_a_fact_agrees_with_itself(role: Role) -> None:
    fact = role.fact
    assert fact.doc.endswith(".")
    assert "\n" not in fact.doc + fact.without
    if fact.types and fact.default not in (None, attrs.NOTHING):
        assert isinstance(fact.default, fact.types)
    if fact.ddl not in (None, NOW):
        assert fact.ddl == fact.default
    if fact.starts_null:
        assert fact.default is None
    if fact.types and role is not Role.ID:
        assert fact.open_type in fact.types


@pytest.mark.parametrize("role", Role)
def test_what_a_claim_writes_is_taken_back_by_settlements_a_requeue_and_a_dead_letter(role: Role) -> None:
    """The count of attempts stays for people to see, but where the row begins anew."""
    writes: Writes = role.fact.writes
    if writes.claim is None:
        return
    assert None not in (writes.requeue, writes.dead_letter)
    if role is not Role.ATTEMPT:
        assert writes.settle is not None


def test_a_columns_name_may_hold_braces_wherever_it_is_written() -> None:
    columns = [ColumnSpec(field="id", type=int, role=Role.ID), *(braced(role) for role in Role if role is not Role.ID)]
    leased = TableSpec(name="jobs", columns=columns)
    locked = TableSpec(name="jobs", columns=[one for one in columns if one.role is not Role.LEASE], advisory_lock="x")
    with Broker("sqlite://") as broker:
        made = [
            by_lease(QueueSQL(broker.dialect, leased, grouped=True)),
            by_advisory_lock(QueueSQL(broker.dialect, locked, grouped=True), capped=True),
        ]
    assert all('"{error}"' in one.park.text for one in made if one.park)


def braced(role: Role) -> ColumnSpec:
    return ColumnSpec(field=role.value, name=f"{{{role.value}}}", optional=True, role=role)
