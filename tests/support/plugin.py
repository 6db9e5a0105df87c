"""The databases as fixtures, and the check for leftovers.

`database` runs a test on every database there is, `sqlite_database` and `postgres_database` on one kind. Tests on
PostgreSQL carry the marker `postgres` by the fixture they ask for.
"""

import importlib.metadata
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import attrs
import hypothesis
import pytest

from tests.support import availability, leftovers
from tests.support.availability import Label
from tests.support.database import Database, sqlite_file
from tests.support.leaving_out import LEFT_OUT, LeftOut
from tests.support.scratch import SCRATCH

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
    """A database in each of the run's PostgreSQL servers, made when a test first asks for it."""

    left_out: LeftOut
    _scratch: Path
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
            return self._until_end.enter_context(_server(label, self._scratch))
        except Exception as error:  # noqa: BLE001 - whatever the reason, it is told and the other databases are tested
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.left_out.add(label, reason)
            return reason


def _server(label: Label, scratch: Path) -> "AbstractContextManager[Server]":
    from tests.support import postgres

    if label == "postgres-wheel":
        return postgres.wheel_database(scratch)
    return postgres.own_database(label, str(availability.given_url()))


@pytest.fixture(scope="session")
def postgres_servers(pytestconfig: pytest.Config) -> Iterator[Servers]:
    with ExitStack() as until_end:
        yield Servers(pytestconfig.stash[LEFT_OUT], pytestconfig.stash[SCRATCH], until_end)


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


@pytest.fixture(scope="session", autouse=True)
def _read_entry_points_once() -> Iterator[None]:
    """What is installed stays the same while tests run, and reading it takes longer than many a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlqueue.plugins.entry_points", cache(importlib.metadata.entry_points))
        yield


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
