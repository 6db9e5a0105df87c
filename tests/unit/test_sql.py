"""Templates become statements: `{braces}` are structure, `:names` are values, and nothing else is either."""

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.sql import Call, Statement, fill, statement

# Lines are laid out anew, so line breaks are left to the templates.
PRINTED = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=20)

# What the scanner must step over; each may hold colons and question marks, and none of them is a value.
COMMENTS = PRINTED.map(lambda text: f"--{text}\n")
BLOCKS = PRINTED.filter(lambda text: "*/" not in text and not text.endswith("*")).map(lambda text: f"/*{text}*/")
LITERALS = PRINTED.map(lambda text: "'" + text.replace("'", "''") + "'")
IDENTIFIERS = PRINTED.map(lambda text: '"' + text.replace('"', '""') + '"')
OPAQUE = st.one_of(COMMENTS, BLOCKS, LITERALS, IDENTIFIERS, st.just("::text"), st.just("::timestamptz[]"))

NAMES = st.from_regex(r"[^\W\d]\w{0,8}", fullmatch=True)


def numbered(template: str, fragments: dict[str, str] | None = None) -> Statement:
    return statement("a test", template, fragments or {}, placeholder=lambda number: f"${number}")


def body(one: Statement) -> str:
    """The statement without the comment that names it."""
    first, _, rest = one.text.partition("\n")
    assert first == "-- sqlqueue: a test"
    return rest


def test_values_are_numbered_by_first_use_and_a_repeated_one_keeps_its_number() -> None:
    one = numbered("SELECT :b, :a, :b WHERE x = :c")
    assert body(one) == "SELECT $1, $2, $1 WHERE x = $3"
    assert one.parameters == ("b", "a", "c")


def test_values_are_bound_in_the_order_of_their_numbers() -> None:
    assert numbered("SELECT :b, :a, :b").bind({"a": 1, "b": 2, "unused": 3}) == (2, 1)


def test_a_value_that_is_not_given_is_an_error_rather_than_null() -> None:
    with pytest.raises(KeyError, match="b"):
        numbered("SELECT :a, :b").bind({"a": 1})


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ':a'",
        "SELECT 'it''s :a'",
        'SELECT ":a"',
        'SELECT "say "":a"""',
        "SELECT 1 -- :a",
        "SELECT 1 /* :a\n:b */",
        "SELECT '2030-01-01'::timestamptz",
        "SELECT x::text[]",
        "SELECT ''':a'",
    ],
)
def test_comments_literals_quoted_identifiers_and_casts_hold_no_values(text: str) -> None:
    one = numbered(text)
    assert body(one) == text
    assert one.parameters == ()


def test_a_cast_follows_its_value() -> None:
    one = numbered("SELECT :id::bigint[], :a::text")
    assert body(one) == "SELECT $1::bigint[], $2::text"


@given(st.lists(st.one_of(OPAQUE.map(lambda text: (text, None)), NAMES.map(lambda name: (f" :{name} ", name)))))
def test_whatever_stands_around_them_the_values_alone_are_found(parts: list[tuple[str, str | None]]) -> None:
    names = list(dict.fromkeys(name for _, name in parts if name is not None))
    expected = [text if name is None else f" ${names.index(name) + 1} " for text, name in parts]
    template = "".join(text for text, _ in parts)
    one = statement("t", "{all}", {"all": template}, placeholder=lambda number: f"${number}")
    assert one.parameters == tuple(names)
    assert fill("{all}", {"all": "".join(expected)}) == one.text.removeprefix("-- sqlqueue: t\n")


@given(PRINTED)
def test_an_identifier_comes_through_as_it_is_braces_and_colons_and_all(name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    one = statement("t", "SELECT {x} AS {x} FROM t", {"x": quoted}, placeholder=lambda number: f"?{number}")
    assert one.parameters == ()
    assert one.text.endswith(f"SELECT {quoted} AS {quoted} FROM t")


def test_a_fragment_is_not_filled_in_again() -> None:
    assert fill("SELECT {column}, {id}", {"column": '"{id}"', "id": '"a"'}) == 'SELECT "{id}", "a"'


def test_a_missing_fragment_is_an_error() -> None:
    with pytest.raises(KeyError, match="table"):
        fill("SELECT * FROM {table}", {})


def test_an_empty_fragment_leaves_no_blank_line() -> None:
    assert fill("\nSELECT 1\n{skip_locked}\n    LIMIT 1  \n", {"skip_locked": ""}) == "SELECT 1\n    LIMIT 1"


def test_a_fragment_of_several_lines_is_indented_as_it_stands() -> None:
    assert fill("WITH a AS (\n    {inner}\n)", {"inner": "SELECT 1\nLIMIT 2"}) == (
        "WITH a AS (\n    SELECT 1\n    LIMIT 2\n)"
    )


def test_a_statement_is_headed_by_its_name_so_that_the_servers_log_tells_it() -> None:
    one = statement("claim by lease", "SELECT :x", {}, placeholder=lambda number: f"?{number}", given=("x",), width=1)
    assert one == Statement(
        name="claim by lease",
        text="-- sqlqueue: claim by lease\nSELECT ?1",
        parameters=("x",),
        given=("x",),
        width=1,
    )


@given(st.dictionaries(NAMES, st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=5), st.data())
def test_every_name_that_python_takes_for_a_field_binds_its_value(values: dict[str, int], data: st.DataObject) -> None:
    used = data.draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=8))
    template = "SELECT " + ", ".join(f":{name}" for name in used)
    one = statement("t", template, {}, placeholder=lambda number: f"?{number}")
    connection = sqlite3.connect(":memory:")
    try:
        row = connection.execute(one.text, one.bind(values)).fetchone()
    finally:
        connection.close()
    assert row == tuple(values[name] for name in used)


def test_a_call_without_values_has_none() -> None:
    assert Call(numbered("SELECT 1")).values == {}
