"""The databases as fixtures, what is left out told at the end, and the check for leftovers.

`database` runs a test on every database there is, `sqlite_database` and `postgres_database` on one kind. Tests on
PostgreSQL carry the marker `postgres` by the fixture they ask for.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, get_args

import attrs
import hypothesis
import pytest

from tests.support import availability, leftovers
from tests.support.availability import LEFT_OUT, Label, LeftOut
from tests.support.database import Database, sqlite_file

if TYPE_CHECKING:  # it imports psycopg, which need not be there
    from tests.support.postgres import Server

# A shared machine may stall any example; a slow one is no failure.
hypothesis.settings.register_profile("sqlqueue", deadline=None)
hypothesis.settings.load_profile("sqlqueue")


def params_for(*labels: Label) -> list[Any]:
    """The labels that can be tested here, as pytest's parameters; where none can, the first one, skipped with its
    reason."""
    here = [label for label in labels if availability.why_not(label) is None]
    marks = {label: [] if label == "sqlite" else [pytest.mark.postgres] for label in labels}
    if not here:
        marks[labels[0]].append(pytest.mark.skip(reason=str(availability.why_not(labels[0]))))
    return [pytest.param(label, marks=marks[label], id=label) for label in here or labels[:1]]


@attrs.define
class Servers:
    """The run's PostgreSQL servers, each started when a test first asks for it."""

    left_out: LeftOut
    _until_end: ExitStack
    _started: "dict[Label, Server | str]" = attrs.field(factory=dict)

    def get(self, label: Label) -> "Server":
        if label not in self._started:
            self._started[label] = self._start(label)
        server = self._started[label]
        if isinstance(server, str):
            (pytest.fail if availability.strict() else pytest.skip)(f"{label}: {server}")
        return server

    def _start(self, label: Label) -> "Server | str":
        try:
            return self._until_end.enter_context(_server(label))
        except Exception as error:  # noqa: BLE001 - whatever the reason, it is told and the other databases are tested
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.left_out.add(label, reason)
            return reason


def _server(label: Label) -> "AbstractContextManager[Server]":
    from tests.support import postgres

    if label == "postgres-wheel":
        return postgres.wheel_server()
    return postgres.own_database(label, str(availability.given_url()))


@pytest.fixture(scope="session")
def postgres_servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    with ExitStack() as until_end:
        yield Servers(pytestconfig.stash[LEFT_OUT], until_end)


@pytest.fixture(params=params_for("sqlite", "postgres-wheel", "postgres-given"))
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of the test's own: the test runs on every one there is."""
    yield from _provide(request, tmp_path)


@pytest.fixture(params=params_for("sqlite"))
def sqlite_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh SQLite file; it does not exist before somebody connects."""
    yield from _provide(request, tmp_path)


@pytest.fixture(params=params_for("postgres-wheel", "postgres-given"))
def postgres_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh PostgreSQL schema, on every server there is."""
    yield from _provide(request, tmp_path)


def _abandons(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("abandons") is not None


def _provide(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    label = cast("Label", request.param)
    if label == "sqlite":
        yield from _provide_sqlite(tmp_path / "test.db", abandons=_abandons(request))
        return
    servers: Servers = request.getfixturevalue("postgres_servers")
    with servers.get(label).schema(abandons=_abandons(request)) as database:
        yield database


def _provide_sqlite(path: Path, *, abandons: bool) -> Iterator[Database]:
    database = sqlite_file(path)
    yield database
    database.close()
    left = leftovers.open_files(path)
    if left and not abandons:
        pytest.fail("connections left open: " + ", ".join(left))


@pytest.fixture(autouse=True)
def _no_threads_left(request: pytest.FixtureRequest) -> Iterator[None]:
    if _abandons(request):
        yield
        return
    with leftovers.no_threads_left():
        yield


def pytest_configure(config: pytest.Config) -> None:
    left_out = config.stash.setdefault(LEFT_OUT, LeftOut())
    for label in get_args(Label):
        reason = availability.why_not(label)
        if reason is not None:
            left_out.add(label, reason)
    for module in availability.INTEGRATIONS:
        if not availability.installed(module):
            left_out.add(module, "not installed")
    for broker in availability.BROKERS:
        reason = availability.why_no_broker(broker)
        if reason is not None:
            left_out.add(broker, reason)
    if not availability.installed("trustme"):
        left_out.add("TLS to brokers", "trustme is not installed")
    if availability.pgbouncer() is None:
        left_out.add(availability.PGBOUNCER, "not installed; a pooler of the tests' own stands in", allowed=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what a database does not claim to do: SQLite has no row locks, which the suite asks about by name."""
    asked = [(item, getattr(item, "callspec", None)) for item in items]
    without = [
        item
        for item, spec in asked
        if spec is not None
        and spec.params.get("database") == "sqlite"
        and "row_lock" in (spec.params.get("strategy"), spec.params.get("seated"))
    ]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in set(without)]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under SQLQUEUE_TEST_STRICT=1 what was left out fails the run."""
    if session.exitstatus == pytest.ExitCode.OK and availability.strict() and _failing(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    gaps = _gaps(config)
    if not gaps:
        return
    failing = availability.strict() and bool(_failing(config))
    terminalreporter.section("left out:", yellow=not failing, red=failing)
    for gap in gaps:
        terminalreporter.line(gap)
    if failing:
        terminalreporter.line(f"{availability.STRICT} is set: what is left out fails the run", red=True)


def _gaps(config: pytest.Config) -> list[str]:
    """What was left out, a line each; skipped tests count."""
    reasons = config.stash[LEFT_OUT].reasons
    return [f"{name}: {reason}" for name, reason in reasons.items()] + _skipped(config)


def _failing(config: pytest.Config) -> list[str]:
    """Of those, what a strict run may not leave out."""
    left_out = config.stash[LEFT_OUT]
    return [name for name in left_out.reasons if name not in left_out.allowed] + _skipped(config)


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter else 0
    return [f"{skipped} skipped (listed below)"] if skipped else []
