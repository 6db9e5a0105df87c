"""The tests' databases (tests/support/plugin.py), made durable; the options; and the table at the end of a run."""

from collections.abc import Callable

import pytest

from benchmarks.report import REPORT, Report
from tests.support import availability
from tests.support.database import Database


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sqlqueue benchmarks")
    group.addoption("--scale", type=float, default=1.0, help="rows of each benchmark, as a share of the usual (1)")
    group.addoption("--memory-rows", type=int, default=200_000, help="rows that the memory benchmark works (200000)")
    group.addoption("--publish-to", action="append", default=[], help="a target's URL for the relays (more: again)")
    group.addoption("--idle-seconds", type=float, default=10.0, help="how long an idle consumer is watched (10)")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.support.plugin")
    config.stash[REPORT] = Report()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """One PostgreSQL is enough: the given server where there is one, else the wheel's."""
    if availability.given_url() is None:
        return
    spare = [item for item in items if "postgres-wheel" in item.nodeid]
    config.hook.pytest_deselected(items=spare)
    items[:] = [item for item in items if item not in spare]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, lines in config.stash[REPORT].tables():
        terminalreporter.section(title)
        for line in lines:
            terminalreporter.line(line)


@pytest.fixture
def database(database: Database) -> Database:
    return _durable(database)


@pytest.fixture
def postgres_database(postgres_database: Database) -> Database:
    return _durable(postgres_database)


def _durable(database: Database) -> Database:
    """The database, set to survive a power failure: the tests' own server is not."""
    if database.label == "postgres-wheel":
        for setting in ("fsync", "full_page_writes"):
            database.execute(f"ALTER SYSTEM SET {setting} = on")
        database.execute("SELECT pg_reload_conf()")
    return database


@pytest.fixture
def report(pytestconfig: pytest.Config) -> Report:
    return pytestconfig.stash[REPORT]


@pytest.fixture
def scaled(pytestconfig: pytest.Config) -> Callable[[int], int]:
    """So many rows, by the option `--scale`."""
    scale = float(pytestconfig.getoption("scale"))
    return lambda rows: max(1, round(rows * scale))
