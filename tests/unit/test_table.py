"""A class of rows and its description: what the decorator makes of annotations, marks and defaults."""

from datetime import datetime, timezone
from typing import Any, NewType, Optional
from uuid import UUID, uuid4

import attrs
import pytest

from sqlqueue import Broker, ColumnSpec, Role, TableSpec, column, table
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.spec import default_of, spec_of
from sqlqueue.statements import insert
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan

JobId = NewType("JobId", int)


@table("Job", schema="shop")
class Job:
    id: int = column.id(name="Nr", generated=True)
    team: str = column.group()
    rank: int = column.priority()
    account: str | None = column.partition_key()
    due: datetime | None = column.retry_after()
    tries: int = column.attempt()
    done_at: datetime | None = column.processed_at()
    until: datetime | None = column.lease(name="locked until")
    notes: dict[str, str] | None = column.headers()
    body: bytes = column.payload()
    trouble: str | None = column.error()
    busy: bool = column.running()
    colour: str = "red"


# A type checker asks for every field whose default stands in no argument of its mark.
MAKE: Any = Job

BY_HAND = TableSpec(
    name="Job",
    schema="shop",
    columns=(
        ColumnSpec(field="id", name="Nr", type=int, role=Role.ID, generated=True, default=None),
        ColumnSpec(field="team", type=str, role=Role.GROUP),
        ColumnSpec(field="rank", type=int, role=Role.PRIORITY, default=0),
        ColumnSpec(field="account", type=str, optional=True, role=Role.PARTITION_KEY, default=None),
        ColumnSpec(field="due", type=datetime, optional=True, role=Role.RETRY_AFTER, default=None),
        ColumnSpec(field="tries", type=int, role=Role.ATTEMPT, default=0),
        ColumnSpec(field="done_at", type=datetime, optional=True, role=Role.PROCESSED_AT, default=None),
        ColumnSpec(field="until", name="locked until", type=datetime, optional=True, role=Role.LEASE, default=None),
        ColumnSpec(field="notes", type=dict[str, str], optional=True, role=Role.HEADERS, default=None),
        ColumnSpec(field="body", type=bytes, role=Role.PAYLOAD),
        ColumnSpec(field="trouble", type=str, optional=True, role=Role.ERROR, default=None),
        ColumnSpec(field="busy", type=bool, role=Role.RUNNING, default=False),
        ColumnSpec(field="colour", type=str, default="red"),
    ),
)


def test_every_mark_gives_its_column_its_role_name_and_type() -> None:
    spec = spec_of(Job)
    assert {role: spec.role(role) for role in Role} == {role: BY_HAND.role(role) for role in Role}
    assert all(spec.has(role) for role in Role)


def test_a_description_by_hand_equals_the_classs_but_for_the_rows() -> None:
    """SUITE 12"""
    assert attrs.evolve(spec_of(Job), row_class=None) == BY_HAND


def test_both_descriptions_of_one_table_give_the_same_statements() -> None:
    """SUITE 12"""
    with Broker("sqlite://") as broker:
        statements = [
            [
                insert(broker.dialect, spec, [one for one in spec.columns if not one.generated]),
                *Lease(
                    QueuePlan(sql=QueueSQL(broker.dialect, spec, True), columns=spec.columns, lease=30)
                ).statements(),
            ]
            for spec in (spec_of(Job), BY_HAND)
        ]
    assert statements[0] == statements[1]


def test_a_row_in_the_making_names_only_what_has_no_default() -> None:
    assert attrs.asdict(MAKE(team="north", body=b"")) == {
        "id": None,
        "team": "north",
        "rank": 0,
        "account": None,
        "due": None,
        "tries": 0,
        "done_at": None,
        "until": None,
        "notes": None,
        "body": b"",
        "trouble": None,
        "busy": False,
        "colour": "red",
    }


def test_rows_are_keyword_only_and_say_what_they_lack() -> None:
    with pytest.raises(TypeError, match="positional"):
        MAKE(1)
    with pytest.raises(TypeError, match=r"team.*body"):
        MAKE()


def test_the_rows_values_are_told_by_field() -> None:
    values = spec_of(Job).values(MAKE(id=7, team="north", body=b"x"))
    assert (values["id"], values["team"], values["body"]) == (7, "north", b"x")
    assert BY_HAND.values({"team": "north"}) == {"team": "north"}


def test_a_column_is_optional_where_its_annotation_takes_none() -> None:
    @table("t")
    class Row:
        id: UUID = column.id()
        a: Optional[int] = None  # noqa: UP045 - the old spelling is read as well
        b: "int | None" = None
        c: int = 0
        d: int | str | None = None
        e: Any = None

    columns = spec_of(Row).columns
    assert [(one.type, one.optional) for one in columns] == [
        (UUID, False),
        (int, True),
        (int, True),
        (int, False),
        (Any, True),
        (Any, True),
    ]


def test_a_new_type_is_the_type_that_it_names() -> None:
    @table("t")
    class Row:
        id: JobId = column.id()
        parent: JobId | None = None

    assert [one.type for one in spec_of(Row).columns] == [int, int]


def test_a_default_that_is_made_is_made_for_each_row() -> None:
    @table("t")
    class Row:
        id: UUID = attrs.field(factory=uuid4, metadata=column.id().metadata)
        made_at: datetime = attrs.field(factory=lambda: datetime.now(timezone.utc))

    spec = spec_of(Row)
    assert default_of(spec.id) != default_of(spec.id)
    assert default_of(ColumnSpec(field="x")) is attrs.NOTHING
    assert default_of(ColumnSpec(field="x", role=Role.ATTEMPT)) == 0


def test_the_whole_name_holds_the_schema_where_there_is_one() -> None:
    assert spec_of(Job).full_name == "shop.Job"
    assert TableSpec(name="Job", columns=[ColumnSpec(field="id", role=Role.ID)]).full_name == "Job"
