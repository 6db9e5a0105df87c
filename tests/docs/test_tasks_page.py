"""The pages about step tasks on every database: their programs one after the other, with the SQL between them."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sqlqueue import Broker, Consumer
from tests.docs.pages import ROOT, blocks
from tests.support.database import Database

AT_WORK = ROOT / "docs" / "tasks-at-work.md"

#: The SQL of a page that is run between its programs.
RUN_BY = {"sqlite": [("sql", "tasks")], "postgres": [("sql", "tasks"), ("sql", "postgresql")]}

Names = dict[str, Any]
Read = Callable[[str], Names]


@pytest.fixture
def read(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Run all of a page; what its programs have defined."""
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:

        def read(page: str) -> Names:
            path = ROOT / "docs" / page
            names: Names = {"__name__": "__main__"}
            stack.callback(lambda: names["broker"].close() if "broker" in names else None)
            for block in blocks(path):
                if block.info[0] == "python":
                    text = here(block.text, database)
                    exec(compile("\n" * (block.line - 1) + text, str(path), "exec"), names)  # noqa: S102 - our own page
                elif block.info in RUN_BY[database.kind]:
                    database.script(block.text)
            return names

        yield read


def here(program: str, database: Database) -> str:
    """A page's program as a reader with this database writes it."""
    text = program.replace("sqlite:///shop.db", database.url)
    if database.kind == "sqlite":
        return text
    return re.sub(r"VALUES \([?, ]+\)", lambda values: values[0].replace("?", "%s"), text)


def test_rows_of_the_pages_sql_are_run(read: Read, database: Database) -> None:
    names = read("tasks.md")
    Consumer(names["broker"]).run_until_idle(timeout=10)
    assert {"A-17", "A-18", "A-21"} <= set(names["shipped"])
    assert {step for (step,) in database.execute("SELECT step FROM pg_task")} == {
        '{"Purchase":{"Ship":{"order":"A-19"}}}',
        '{"Purchase":{"Ship":{"order":"A-20"}}}',
    }


def test_former_names_in_the_pages_sql_are_run(read: Read, database: Database) -> None:
    names = read("tasks-at-work.md")
    Consumer(names["broker"]).run_until_idle(timeout=10)
    assert sorted(names["shipped"]) == ["A-22", "A-24 as Deliver", "A-25 as Deliver"]
    assert database.execute("SELECT EXISTS (SELECT 1 FROM pg_task WHERE is_running)")[0][0] in (0, False)


def test_what_the_pages_transactional_step_writes_commits_with_its_task(read: Read, database: Database) -> None:
    read("transactions.md")
    assert sorted(database.execute("SELECT amount FROM orders")) == [(500,), (1999,)]
    assert database.execute("SELECT count(*) FROM mails") == [(2,)]
    assert database.execute("SELECT count(*) FROM booking_task") == [(0,)]


STORED = ['{"Purchase":{"Pay":{"order":"A-17","cents":1999}}}', '{"Purchase":{"Ship":"A-17"}}']


@pytest.mark.parametrize("stored", STORED)
def test_the_table_of_stored_steps_says_what_they_are_read_as(read: Read, database: Database, stored: str) -> None:
    names = read("tasks-at-work.md")
    (row,) = [line for line in AT_WORK.read_text().splitlines() if line.startswith(f"| `{stored}` |")]
    database.execute("DELETE FROM pg_task")
    database.execute("INSERT INTO pg_task (step) VALUES (?)", stored)
    (task,) = names["tasks"].list()
    assert task.step == eval(row.split("`")[3], names)  # noqa: S307 - our own page


def test_the_settings_that_the_page_lists_are_those_that_there_are(read: Read, database: Database) -> None:
    names = read("tasks-at-work.md")
    shown = next(text for text in AT_WORK.read_text().split("`") if text.startswith("TaskQueue(broker, tasks, table="))
    call = shown.replace("tasks,", "given,", 1).replace("\n", " ")
    with Broker(database.url) as broker:
        made = eval(call, {**names, "broker": broker, "given": names["tasks"].tasks})  # noqa: S307 - our own page
    assert made.name == "pg_task"
