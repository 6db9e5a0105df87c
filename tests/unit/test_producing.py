"""A message and its options become the values of one row, or are refused before anything is written."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest

from sqlqueue import (
    Broker,
    ColumnSpec,
    DatabaseClock,
    DeclarationError,
    EncodeError,
    HostClock,
    JsonCodec,
    Role,
    TableSpec,
    column,
    table,
)
from sqlqueue.enqueue import RowMaker
from sqlqueue.spec import spec_of
from sqlqueue.testing import ManualClock

CLOCK = ManualClock()
NOW = CLOCK.now()


@table("jobs", clock=CLOCK)
class Job:
    id: int = column.id(generated=True)
    team: str = column.group()
    rank: int = column.priority()
    account: str | None = column.partition_key()
    due: datetime | None = column.retry_after()
    locked_until: datetime | None = column.lease()
    notes: dict[str, str] | None = column.headers()
    body: bytes = column.payload()
    colour: str = "red"


@table("plain")
class Plain:
    id: int = column.id()
    name: str


# A type checker asks for every field whose default stands in no argument of its mark.
MAKE: Any = Job


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker("sqlite://") as broker:
        yield broker


def maker(broker: Broker, declared: "type | TableSpec" = Job, group: str | None = "north") -> RowMaker:
    spec = spec_of(declared)
    return RowMaker(queue="q", spec=spec, group=group, codec=JsonCodec(), dialect=broker.dialect)


FRESH = {
    "team": "north",
    "rank": 0,
    "account": None,
    "due": None,
    "locked_until": None,
    "notes": None,
    "body": b"7",
    "colour": "red",
}


def test_a_message_fills_the_payload_and_the_rest_has_its_defaults(broker: Broker) -> None:
    assert maker(broker).row(7) == FRESH


def test_options_fill_the_columns_of_their_roles(broker: Broker) -> None:
    row = maker(broker).row(7, key="a", headers={"x": 1}, priority=-3, delay=90)
    assert row == FRESH | {"account": "a", "notes": {"x": "1"}, "rank": -3, "due": NOW + timedelta(seconds=90)}


def test_a_row_goes_in_as_it_is_without_what_the_database_fills_in(broker: Broker) -> None:
    """SUITE 14"""
    due = NOW + timedelta(days=1)
    made = maker(broker)
    row = made.row(MAKE(id=5, team="north", due=due, body=b"raw", colour="blue"))
    assert made.named(row) == FRESH | {"due": "2030-01-02 00:00:00.000000", "body": b"raw", "colour": "blue"}


def test_a_moment_in_another_zone_is_stored_in_utc(broker: Broker) -> None:
    at = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    due = maker(broker).row(7, at=at)["due"]
    assert (due, due.tzinfo) == (NOW, timezone.utc)


def test_a_delay_counts_from_the_tables_own_clock(broker: Broker) -> None:
    assert maker(broker).row(7, delay=timedelta(minutes=1))["due"] == NOW + timedelta(minutes=1)
    assert maker(broker).row(7, delay=0)["due"] == NOW


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": -1}, "delay is -1; give seconds from 0 up"),
        ({"delay": float("nan")}, "delay is nan; give seconds from 0 up"),
        ({"delay": 1e12}, "delay is 1000000000000.0, which leads past the last year that a datetime holds"),
        ({"delay": timedelta.max}, f"delay is {timedelta.max!r}, which leads past the last year that a datetime holds"),
        ({"delay": "soon"}, "delay is 'soon'; give seconds as a number, or a timedelta"),
        ({"at": "tomorrow"}, "at is 'tomorrow'; give an aware datetime"),
        ({"delay": 1, "at": NOW}, f"delay=1 and at={NOW!r} are both given; give one of them"),
    ],
)
def test_a_time_that_is_none_is_a_value_error(broker: Broker, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared
        maker(broker).row(7, **options)
    assert str(caught.value) == said


def test_a_naive_moment_is_refused_in_an_option_and_in_a_row(broker: Broker) -> None:
    naive = datetime(2030, 1, 1)  # noqa: DTZ001
    with pytest.raises(ValueError, match=r"^at is .* names no time zone"):
        maker(broker).row(7, at=naive)
    with pytest.raises(ValueError, match=r"^queue q: due is .* names no time zone"):
        maker(broker).row(MAKE(team="north", body=b"", due=naive))


@pytest.mark.parametrize(
    ("options", "role"),
    [
        ({"headers": {}}, Role.HEADERS),
        ({"key": "a"}, Role.PARTITION_KEY),
        ({"priority": 0}, Role.PRIORITY),
        ({"delay": 0}, Role.RETRY_AFTER),
        ({"at": NOW}, Role.RETRY_AFTER),
    ],
)
def test_an_option_without_its_column_is_refused_rather_than_dropped(
    broker: Broker, options: dict[str, Any], role: Role
) -> None:
    """SUITE 179"""
    given = "delay or at" if role is Role.RETRY_AFTER else next(iter(options))
    with pytest.raises(DeclarationError) as caught:
        maker(broker, Plain, None).row(Plain(id=1, name="a"), **options)
    assert str(caught.value) == (
        f"queue q: {given} given, but no column plays the role {role.value!r}; mark one with column.{role.value}(); "
        "nothing was written"
    )


@pytest.mark.parametrize(
    ("options", "role"),
    [
        ({"key": "a"}, Role.PARTITION_KEY),
        ({"priority": 0}, Role.PRIORITY),
        ({"delay": 0}, Role.RETRY_AFTER),
        ({"at": NOW}, Role.RETRY_AFTER),
    ],
)
def test_an_option_whose_column_the_database_fills_in_is_refused_rather_than_dropped(
    broker: Broker, options: dict[str, Any], role: Role
) -> None:
    spec = spec_of(Job)
    generated = [attrs.evolve(one, generated=one.generated or one.role is role) for one in spec.columns]
    with pytest.raises(DeclarationError, match=r"is declared as generated, so that the database fills it in"):
        maker(broker, attrs.evolve(spec, columns=generated)).row(7, **options)


@pytest.mark.parametrize("priority", ["high", True, float("nan"), [1]])
def test_a_priority_that_orders_nothing_is_refused(broker: Broker, priority: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        maker(broker).row(7, priority=priority)
    assert str(caught.value) == f"queue q: priority is {priority!r}; give a number, the smaller the sooner"


def test_a_message_on_a_table_without_a_payload_is_refused_with_what_goes_there(broker: Broker) -> None:
    said = "queue q: int is no row of the table, which has no payload column; enqueue "
    for declared, row in ((Plain, "Plain"), (attrs.evolve(spec_of(Plain), row_class=None), "a mapping")):
        with pytest.raises(EncodeError) as caught:
            maker(broker, declared, None).row(7)
        assert str(caught.value) == said + row


def test_a_mapping_is_the_row_of_a_description_by_hand_without_a_payload(broker: Broker) -> None:
    made = maker(broker, attrs.evolve(spec_of(Plain), row_class=None), None)
    assert made.row({"id": 1, "name": "a"}) == {"id": 1, "name": "a"}


def test_a_field_that_the_table_does_not_have_is_refused_rather_than_dropped(broker: Broker) -> None:
    made = maker(broker, attrs.evolve(spec_of(Plain), row_class=None), None)
    with pytest.raises(EncodeError) as caught:
        made.row({"id": 1, "nmae": "a", "name": "b"})
    assert str(caught.value) == (
        "queue q: the row names 'nmae', which is no field of its table; the fields are id, name"
    )


def test_a_field_without_value_and_default_is_refused_by_its_name(broker: Broker) -> None:
    made = maker(broker, attrs.evolve(spec_of(Plain), row_class=None), None)
    with pytest.raises(EncodeError) as caught:
        made.row({"id": 1})
    assert str(caught.value) == (
        "queue q: the row has no value for 'name', which has no default; enqueue a whole row, give the field a "
        "default, or declare it as generated"
    )


@table("measured")
class Measured:
    id: int = column.id(generated=True)
    body: bytes = column.payload()
    name: str = "abc"
    length: int = attrs.field(default=attrs.Factory(lambda row: len(row.name), takes_self=True))


def test_a_default_that_is_made_of_the_row_needs_one(broker: Broker) -> None:
    maker = RowMaker(queue="measured", spec=spec_of(Measured), group=None, codec=JsonCodec(), dialect=broker.dialect)
    assert maker.row(Measured(body=b"", name="four"))["length"] == 4
    with pytest.raises(EncodeError, match="the row has no value for 'length', whose default is made of the row itself"):
        maker.row("a message")


def test_a_row_of_another_group_is_sent_to_its_own_queue(broker: Broker) -> None:
    with pytest.raises(DeclarationError) as caught:
        maker(broker).row(MAKE(team="south", body=b""))
    assert str(caught.value) == "queue q: the row's group is 'south'; enqueue it to the queue of that group"
    assert maker(broker, group=None).row(MAKE(team="south", body=b""))["team"] == "south"


def test_a_due_column_that_takes_no_null_is_due_now(broker: Broker) -> None:
    spec = TableSpec(
        name="jobs",
        clock=CLOCK,
        columns=(
            ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
            ColumnSpec(field="due", type=datetime, role=Role.RETRY_AFTER),
            ColumnSpec(field="body", type=bytes, role=Role.PAYLOAD),
        ),
    )
    assert maker(broker, spec, None).row(7) == {"due": NOW, "body": b"7"}
    before = HostClock().now()
    due = maker(broker, attrs.evolve(spec, clock=HostClock()), None).row(7)["due"]
    assert before <= due <= HostClock().now()


def on_database_clock(*, optional: bool) -> TableSpec:
    """Two of its fields are called as the delay would be."""
    return TableSpec(
        name="jobs",
        clock=DatabaseClock(),
        columns=(
            ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
            ColumnSpec(field="due", type=datetime, optional=optional, role=Role.RETRY_AFTER),
            ColumnSpec(field="delay", type=int),
            ColumnSpec(field="delay_", type=int, default=8),
        ),
    )


@pytest.mark.parametrize("optional", [True, False])
def test_by_the_databases_clock_a_row_takes_its_delay_along_and_no_moment(broker: Broker, optional: bool) -> None:
    made = maker(broker, on_database_clock(optional=optional), None)
    assert made.delay == "delay__"
    fields = {"due": None, "delay": 7, "delay_": 8}
    for options, delay in (({}, None if optional else 0.0), ({"delay": 0}, 0.0), ({"delay": timedelta(minutes=1)}, 60)):
        row = made.row({"delay": 7}, **options)
        assert row == made.named(row) == {**fields, "delay__": delay}
    assert made.row({"delay": 7}, at=NOW)["due"] == made.row({"delay": 7, "due": NOW})["due"] == NOW
    assert made.row({"delay": 7, "due": NOW}, delay=1) == {**fields, "delay__": 1.0}
    with pytest.raises(EncodeError, match="'delay__', which is no field"):
        made.row({"delay": 7, "delay__": 1})


@pytest.mark.parametrize(
    "declared",
    [
        Job,
        attrs.evolve(spec_of(Plain), clock=DatabaseClock()),
        attrs.evolve(
            on_database_clock(optional=True),
            columns=[attrs.evolve(one, generated=True) for one in on_database_clock(optional=True).columns],
        ),
    ],
    ids=["by the host's clock", "no moment", "a moment that the database fills in"],
)
def test_no_other_insert_takes_a_delay(broker: Broker, declared: Any) -> None:
    assert maker(broker, declared, None).delay is None


def test_a_bad_delay_is_told_before_a_column_that_is_missing(broker: Broker) -> None:
    made = maker(broker, attrs.evolve(spec_of(Plain), clock=DatabaseClock(), row_class=None), None)
    with pytest.raises(ValueError, match=r"^delay is -1; give seconds from 0 up$"):
        made.row({"id": 1, "name": "a"}, delay=-1)
    with pytest.raises(DeclarationError, match="'retry_after'"):
        made.row({"id": 1, "name": "a"}, delay=1)


def test_a_conflict_has_two_answers_only(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"^on_conflict is 'replace'; give 'error' or 'ignore'$"):
        broker.queue(Plain).enqueue(Plain(id=1, name="a"), on_conflict="replace")  # type: ignore[arg-type]


def test_a_group_on_a_table_without_groups_is_refused(broker: Broker) -> None:
    with pytest.raises(DeclarationError) as caught:
        broker.queue(Plain, group="north")
    assert str(caught.value) == (
        "table 'plain': group='north' is given, but no column plays the role 'group'; mark one with column.group()"
    )


def test_the_same_declaration_and_group_give_the_same_queue(broker: Broker) -> None:
    assert broker.queue(Job, "a") is broker.queue(Job, "a")
    assert broker.queue(Job, "a") is not broker.queue(Job, "b")
    assert [queue.name for queue in broker.queues] == ["jobs[a]", "jobs[b]"]
