"""Values in a list are compared as SQLite's own quote() writes them."""

import sqlite3
from contextlib import closing
from typing import Any

import pytest

from sqlqueue_sqlite.values import quoted, quoted_list


@pytest.mark.parametrize("value", [None, 0, -7, 2**62, "", "a", "it's", "ä\n", b"", b"\x00\xff", 0.5])
def test_a_value_is_written_as_sqlite_writes_it(value: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as database:
        assert database.execute("SELECT quote(?)", [value]).fetchone() == (quoted(value),)


def test_a_list_holds_values_of_every_type() -> None:
    values = [1, "1", b"1", "it's"]
    query = "SELECT quote(?) IN (SELECT value FROM json_each(?))"
    with closing(sqlite3.connect(":memory:")) as database:
        found = [database.execute(query, [value, quoted_list(values)]).fetchone()[0] for value in [*values, 2, "2"]]
    assert found == [1, 1, 1, 1, 0, 0]
