"""sqlqueue imports nobody's library: an integration is loaded where the program has imported what it serves."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.availability import INTEGRATIONS, installed

LIMIT = 60.0

PROGRAM = """
import sqlite3, sys
{imports}
from datetime import datetime
from sqlqueue import Broker, Consumer, column, table

@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()

before = set(sys.modules)
with Broker("sqlite:///jobs.db") as broker:
    jobs = broker.queue(Job)
    jobs.handler(lambda message: print(message))
    broker.create_tables()
    driver = sqlite3.connect("jobs.db")
    jobs.enqueue("handled", connection=driver)
    driver.commit()
    driver.close()
    Consumer(broker).run_until_idle(10)
roots = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print("orm", "sqlalchemy.orm" in sys.modules)
print("imported", sorted(roots & set({libraries})))
"""


def said(imports: str, directory: Path) -> list[str]:
    program = PROGRAM.format(imports=imports, libraries=INTEGRATIONS)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=directory, capture_output=True, text=True, timeout=LIMIT, check=True
    )
    return done.stdout.splitlines()


def test_without_them_none_is_imported(tmp_path: Path) -> None:
    assert said("", tmp_path) == ["handled", "orm False", "imported []"]


@pytest.mark.skipif(not installed("sqlalchemy"), reason="sqlalchemy is not installed")
def test_for_one_part_of_a_library_no_other_is_imported(tmp_path: Path) -> None:
    assert said("import sqlalchemy", tmp_path) == ["handled", "orm False", "imported []"]


@pytest.mark.skipif(not installed("django"), reason="django is not installed")
def test_a_library_that_is_imported_and_not_set_up_is_no_hindrance(tmp_path: Path) -> None:
    assert said("import django.db", tmp_path)[0] == "handled"
