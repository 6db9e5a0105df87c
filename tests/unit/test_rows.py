"""Between rows and messages: headers, payloads, row objects; whatever cannot be read is told by its column."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue import Broker, ColumnSpec, DecodeError, Delivery, EncodeError, JsonCodec, Role, TableSpec, column, table
from sqlqueue.clock import UTC
from sqlqueue.codec import decode_headers, encode_headers
from sqlqueue.delivery import Reader, decode_column, reader
from sqlqueue.enqueue import encode_payload
from sqlqueue.spec import spec_of
from sqlqueue.strategies.claim import Claim

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@table("jobs")
class Job:
    id: int = column.id()
    account: str | None = column.partition_key()
    team: str = column.group()
    notes: dict[str, str] | None = column.headers()
    body: bytes = column.payload()


@table("plain")
class Plain:
    id: UUID = column.id()
    due: datetime | None = column.retry_after()
    count: int = attrs.field(default=0, validator=attrs.validators.ge(0))
    _hidden: str | None = None


def reader_of(declared: "type | TableSpec", kind: Any = Any) -> Reader:
    with Broker("sqlite://") as broker:
        return reader(broker.dialect, spec_of(declared), broker.codec, kind)


def delivered(one: Reader, **values: Any) -> tuple[Any, Delivery]:
    """What the handler gets of a row with these values, by column."""
    row = tuple(values.get(column.field) for column in one.columns)
    delivery = Delivery("jobs", Claim(id=values["id"], token=NOW, expires=NOW, attempt=1, row=row))
    return one.read(delivery), delivery


# -- headers ----------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(), st.text()))
def test_headers_of_text_come_back_as_they_were(headers: dict[str, str]) -> None:
    assert decode_headers(json.dumps(encode_headers(headers))) == headers


def test_numbers_and_truth_values_are_stored_as_text() -> None:
    assert encode_headers({"a": 1, "b": 1.5, "c": True, "d": "x"}) == {"a": "1", "b": "1.5", "c": "true", "d": "x"}


@pytest.mark.parametrize("headers", [{"a": None}, {"a": [1]}, {1: "a"}, {"a": b"x"}, {None: "a"}])
def test_a_header_of_another_type_is_refused_by_its_name(headers: Any) -> None:
    ((name, value),) = headers.items()
    with pytest.raises(EncodeError) as caught:
        encode_headers(headers)
    assert str(caught.value) == (f"header {name!r}: {value!r}; give text as key, and str, int, float or bool as value")


def test_null_headers_are_empty() -> None:
    """SUITE 177"""
    assert decode_headers(None) == {}


@pytest.mark.parametrize("stored", [b'{"a": "b"}', '{"a": "b"}', {"a": "b"}])
def test_headers_are_read_from_text_bytes_and_what_the_driver_made_of_json(stored: Any) -> None:
    assert decode_headers(stored) == {"a": "b"}


@pytest.mark.parametrize("stored", ["7", "[]", '{"a": 1}', '{"a": null}', "null", '"a"', [1], 7, {"a": ["b"]}])
def test_stored_headers_that_are_no_object_of_strings_are_a_decode_failure(stored: Any) -> None:
    """SUITE a"""
    with pytest.raises(DecodeError, match=r"which is no JSON object of strings$"):
        decode_headers(stored)


@pytest.mark.parametrize("stored", ["", "{", "a: b", b"\xff"])
def test_stored_headers_that_are_no_json_are_a_decode_failure(stored: Any) -> None:
    with pytest.raises(DecodeError, match=r"^the headers are no JSON: "):
        decode_headers(stored)


# -- payloads ---------------------------------------------------------------------------------------------------


@given(st.binary())
def test_bytes_go_in_and_come_out_as_they_are(payload: bytes) -> None:
    """SUITE 16, 17"""
    body = spec_of(Job).role(Role.PAYLOAD)
    assert body is not None
    stored = encode_payload(body, JsonCodec(), payload)
    message, _ = delivered(reader_of(Job, bytes), id=1, team="a", body=stored)
    assert (type(message), message) == (bytes, payload)


def test_a_handler_of_raw_bytes_gets_the_json_of_a_column_that_holds_json() -> None:
    columns = [attrs.evolve(one, type=dict) if one.field == "body" else one for one in spec_of(Job).columns]
    declared = attrs.evolve(spec_of(Job), columns=columns, row_class=None)
    message, _ = delivered(reader_of(declared, bytes), id=1, body='{"a": [1, "ü"], "b": null}')
    assert json.loads(message) == {"a": [1, "ü"], "b": None}
    assert isinstance(message, bytes)


@pytest.mark.parametrize(
    ("kind", "stored"), [(bytes, b'{"a":[1,"\xc3\xbc"]}'), (str, '{"a":[1,"\\u00fc"]}'), (dict, {"a": [1, "ü"]})]
)
def test_a_message_is_stored_as_the_payload_columns_type_asks(kind: Any, stored: Any) -> None:
    spec = ColumnSpec(field="body", type=kind, role=Role.PAYLOAD)
    taken = encode_payload(spec, JsonCodec(), {"a": [1, "ü"]})
    assert type(taken) is kind
    assert (json.loads(taken) if kind is not dict else taken) == {"a": [1, "ü"]}
    declared = TableSpec(name="jobs", columns=(ColumnSpec(field="id", type=int, role=Role.ID), spec))
    message, _ = delivered(
        reader_of(declared, dict[str, Any]), id=1, body=json.dumps(stored) if kind is dict else stored
    )
    assert message == {"a": [1, "ü"]}


def test_bytes_that_are_no_text_are_refused_by_a_text_column() -> None:
    spec = ColumnSpec(field="body", name="Body", type=str, role=Role.PAYLOAD)
    with pytest.raises(EncodeError) as caught:
        encode_payload(spec, JsonCodec(), b"\xff")
    assert str(caught.value).startswith("the payload column 'Body' holds text and cannot take these bytes: ")
    assert str(caught.value).endswith("; declare it as bytes")


def test_a_null_payload_is_a_decode_failure_unless_the_handler_takes_none() -> None:
    assert delivered(reader_of(Job, int | None), id=1, team="a", body=None)[0] is None
    assert delivered(reader_of(Job, None), id=1, team="a", body=None)[0] is None
    with pytest.raises(DecodeError, match=r"^the payload is NULL, and the handler's annotation does not take None$"):
        delivered(reader_of(Job, int), id=1, team="a", body=None)


@pytest.mark.parametrize("stored", [b"", b"{", b"\xff\xfe", b'"7"', b"7.5", b"null", b"NaN", b"1e999", b"[7]"])
def test_a_payload_that_does_not_decode_is_told_with_the_type_that_was_asked_for(stored: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^the payload does not decode as int: "):
        delivered(reader_of(Job, int), id=1, team="a", body=stored)


# -- rows and deliveries ----------------------------------------------------------------------------------------


def test_a_delivery_shows_the_rows_id_key_group_and_headers() -> None:
    message, delivery = delivered(reader_of(Job), id=7, account="a", team="b", notes='{"c": "d"}', body=b"[1]")
    assert message == [1]
    assert (delivery.id, delivery.key, delivery.group, delivery.headers) == (7, "a", "b", {"c": "d"})


def test_without_such_columns_a_delivery_shows_none_of_them() -> None:
    _, delivery = delivered(reader_of(Plain), id=str(UUID(int=1)), count=1)
    assert (delivery.id, delivery.key, delivery.group, delivery.headers) == (UUID(int=1), None, None, {})


def test_a_row_arrives_as_an_object_of_its_class_in_its_declared_types() -> None:
    """SUITE 173"""
    row, _ = delivered(reader_of(Plain), id=str(UUID(int=1)), due="2030-01-01T00:00:00Z", count=2, _hidden="x")
    assert row == Plain(id=UUID(int=1), due=NOW, count=2, hidden="x")  # type: ignore[call-arg]


def test_a_row_of_a_description_by_hand_arrives_as_a_mapping() -> None:
    """SUITE 12"""
    by_hand = attrs.evolve(spec_of(Plain), row_class=None)
    row, _ = delivered(reader_of(by_hand), id=str(UUID(int=1)), count=2)
    assert row == {"id": UUID(int=1), "due": None, "count": 2, "_hidden": None}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"id": "x", "count": 1}, "column 'id' holds 'x', which cannot be read: "),
        ({"id": str(UUID(int=1)), "due": "soon", "count": 1}, "column 'due' holds 'soon', which cannot be read: "),
        ({"id": str(UUID(int=1))}, "column 'count' is NULL and is not declared as optional"),
        ({"id": str(UUID(int=1)), "count": -1}, "the row is refused by its class: "),
    ],
)
def test_a_row_that_cannot_be_read_is_told_by_its_column(values: dict[str, Any], said: str) -> None:
    """SUITE 96"""
    with pytest.raises(DecodeError) as caught:
        delivered(reader_of(Plain), **values)
    assert str(caught.value).startswith(said)


def test_a_value_that_is_long_is_told_in_short() -> None:
    with pytest.raises(DecodeError) as caught:
        decode_column(int, ColumnSpec(field="x"), "x" * 10_000)
    assert len(str(caught.value)) < 20_000


def test_the_raw_key_keeps_rows_of_one_key_together_without_reading_them() -> None:
    one = reader_of(Job)
    assert one.raw_key(tuple("key" if column.role is Role.PARTITION_KEY else None for column in one.columns)) == "key"
    assert reader_of(Plain).raw_key((1, 2, 3, 4)) is None
