"""Which column of another table takes what of a dead letter, and what cannot be moved at all."""

from datetime import datetime
from typing import Any

import attrs
import pytest

from sqlqueue import ColumnSpec, DeclarationError, Role, TableSpec
from sqlqueue.destination import Destination, check_apart, matches

ID = ColumnSpec(field="id", type=int, role=Role.ID)
BODY = ColumnSpec(field="body", type=bytes, role=Role.PAYLOAD)


def made(name: str, *columns: ColumnSpec) -> TableSpec:
    return TableSpec(name=name, columns=columns)


def found(source: list[ColumnSpec], theirs: list[ColumnSpec], group: str | None = None) -> dict[str, str | None]:
    """The columns that a move names, each with the one whose value it takes."""
    pairs = matches(made("jobs", *source), Destination(made("dead", *theirs), group))
    return {match.column.name: match.source.name if match.source else None for match in pairs}


def test_a_role_goes_before_a_name() -> None:
    account = ColumnSpec(field="account", type=str, role=Role.PARTITION_KEY)
    customer = ColumnSpec(field="customer", type=str)
    theirs = ColumnSpec(field="customer", type=str, role=Role.PARTITION_KEY)
    assert found([ID, BODY, account, customer], [ID, BODY, theirs]) == {
        "id": "id",
        "body": "body",
        "customer": "account",
    }


def test_a_column_of_the_same_name_will_do_whatever_it_is_for() -> None:
    """So the count can be kept, which the role itself begins anew."""
    attempt = ColumnSpec(field="tries", type=int, role=Role.ATTEMPT)
    theirs = [ID, BODY, ColumnSpec(field="tries", type=int), ColumnSpec(field="count", type=int, role=Role.ATTEMPT)]
    assert found([ID, BODY, attempt], theirs) == {"id": "id", "body": "body", "tries": "tries", "count": None}


def test_what_is_empty_at_first_is_left_to_the_database() -> None:
    roles = [
        ColumnSpec(field="due", type=datetime, optional=True, role=Role.RETRY_AFTER),
        ColumnSpec(field="done", type=datetime, optional=True, role=Role.PROCESSED_AT),
        ColumnSpec(field="lease", type=datetime, optional=True, role=Role.LEASE),
        ColumnSpec(field="error", type=str, optional=True, role=Role.ERROR),
    ]
    assert found([ID, BODY, *roles], [ID, BODY, *roles]) == {"id": "id", "body": "body"}


def test_a_default_of_the_declaration_and_a_named_group_have_values_of_their_own() -> None:
    group = ColumnSpec(field="name", type=str, role=Role.GROUP)
    theirs = [ID, BODY, group, ColumnSpec(field="state", type=str, default="new")]
    assert found([ID, BODY, group], theirs) == {"id": "id", "body": "body", "name": "name", "state": None}
    assert found([ID, BODY, group], theirs, "failed")["name"] is None


def test_a_generated_column_is_never_named() -> None:
    generated = ColumnSpec(field="id", type=int, role=Role.ID, generated=True)
    assert found([ID, BODY], [generated, BODY]) == {"body": "body"}


@pytest.mark.parametrize(("own", "theirs"), [(int, float), (bool, int), (dict, dict[str, str]), (Any, bytes)])
def test_types_that_hold_each_others_values_match(own: Any, theirs: Any) -> None:
    column = ColumnSpec(field="more", type=own)
    assert found([ID, BODY, column], [ID, BODY, ColumnSpec(field="more", type=theirs)])["more"] == "more"


def test_types_that_do_not_are_refused_by_both_columns() -> None:
    text = ColumnSpec(field="text", type=str, role=Role.PAYLOAD)
    with pytest.raises(DeclarationError) as caught:
        found([ID, BODY], [ID, text])
    assert str(caught.value) == (
        "table 'jobs': its dead letters go into table 'dead', whose column 'text' is declared as str and takes the "
        "values of 'body', which is declared as bytes; declare both alike"
    )


def test_a_payload_without_a_place_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"'dead', which has no column for the payload 'body'; mark one with"):
        found([ID, BODY], [ID, ColumnSpec(field="other", type=bytes, optional=True)])


NOTE = ColumnSpec(field="note", type=str, optional=True)


@pytest.mark.parametrize(
    "theirs",
    [
        ColumnSpec(field="note", type=str, optional=True),
        ColumnSpec(field="note", type=str, default="none"),
        ColumnSpec(field="note", type=str, default=attrs.Factory(str)),
        ColumnSpec(field="note", type=str, generated=True),
    ],
    ids=["NULL", "default", "factory", "generated"],
)
def test_a_value_that_may_be_null_needs_a_place_that_takes_it_or_has_another(theirs: ColumnSpec) -> None:
    assert set(found([ID, BODY, NOTE], [ID, BODY, theirs])) == {"id", "body", *([] if theirs.generated else ["note"])}


def test_where_there_is_neither_the_declaration_is_refused_by_both_columns() -> None:
    number = ColumnSpec(field="note", name="remark", type=str)
    of_row = attrs.evolve(number, default=attrs.Factory(lambda row: str(row), takes_self=True))
    with pytest.raises(DeclarationError, match="or give it a default"):
        found([ID, BODY, attrs.evolve(NOTE, name="remark")], [ID, BODY, of_row])
    with pytest.raises(DeclarationError) as caught:
        found([ID, BODY, attrs.evolve(NOTE, name="remark")], [ID, BODY, number])
    assert str(caught.value) == (
        "table 'jobs': its dead letters go into table 'dead', whose column 'remark' takes no NULL and the values of "
        "'remark', which may be NULL; declare it as str | None, or give it a default"
    )
    empty = attrs.evolve(BODY, optional=True)
    with pytest.raises(DeclarationError, match="column 'body' takes no NULL and the values of 'body'"):
        found([ID, empty], [ID, BODY])


def test_an_id_that_is_declared_as_empty_at_first_is_never_empty() -> None:
    assert found([attrs.evolve(ID, optional=True), BODY], [ID, BODY]) == {"id": "id", "body": "body"}


def test_a_queue_does_not_send_its_dead_letters_to_itself() -> None:
    group = ColumnSpec(field="name", type=str, role=Role.GROUP)
    jobs = made("jobs", ID, BODY, group)
    check_apart(jobs, "mail", Destination(jobs, "failed"))
    check_apart(jobs, None, Destination(made("dead", ID, BODY)))
    for own, dead in [("mail", "mail"), ("mail", None), (None, None)]:
        with pytest.raises(DeclarationError, match="is what the queue itself reads"):
            check_apart(jobs, own, Destination(jobs, dead))
    with pytest.raises(DeclarationError, match="is a group that the queue reads as well"):
        check_apart(jobs, None, Destination(jobs, "failed"))
