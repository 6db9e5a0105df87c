"""What a run leaves out: what this machine has not, and what only `make test-all` runs. It is told at the run's end.

Under pytest-xdist each worker tells the controller, which alone reports.
"""

from collections.abc import Mapping
from typing import Any, get_args

import attrs
import pytest

from tests.support import availability
from tests.support.availability import Label

#: The marker of what only `make test-all` runs, and its option.
FULL, OPTION = "full", "--full"

TOLD = "sqlqueue_left_out"


@attrs.define
class LeftOut:
    """What is not tested in this run, by name, with the reason. `full`: how many tests are left to `make test-all`."""

    reasons: dict[str, str] = attrs.field(factory=dict)
    allowed: set[str] = attrs.field(factory=set)
    full: int = 0

    def add(self, name: str, reason: str, *, allowed: bool = False) -> None:
        """`allowed`: it is told, and fails no run, not even a strict one."""
        self.reasons.setdefault(name, reason)
        if allowed:
            self.allowed.add(name)

    def told(self) -> dict[str, Any]:
        """As plain values, from a worker to the controller."""
        return {"reasons": self.reasons, "allowed": sorted(self.allowed), "full": self.full}

    def hear(self, told: Mapping[str, Any]) -> None:
        """What a worker says; each of them has collected the same tests."""
        for name, reason in told["reasons"].items():
            self.add(name, reason, allowed=name in told["allowed"])
        self.full = max(self.full, told["full"])


LEFT_OUT = pytest.StashKey[LeftOut]()


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
    """Leave out what a database does not claim to do: SQLite has no row locks, which the suite asks about by name; and
    what only `make test-all` runs."""
    _leave_out(config, items, [item for item in items if row_locks_on_sqlite(item)])
    if not config.getoption(OPTION):
        full = [item for item in items if item.get_closest_marker(FULL) is not None]
        config.stash[LEFT_OUT].full = len(full)
        _leave_out(config, items, full)


def row_locks_on_sqlite(item: pytest.Item) -> bool:
    spec = getattr(item, "callspec", None)
    if spec is None or spec.params.get("database") != "sqlite":
        return False
    return "row_lock" in (spec.params.get("strategy"), spec.params.get("seated"))


def _leave_out(config: pytest.Config, items: list[pytest.Item], without: list[pytest.Item]) -> None:
    if without:
        config.hook.pytest_deselected(items=without)
        gone = set(without)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker has ended; a crashed one says nothing."""
    told = getattr(node, "workeroutput", {}).get(TOLD)
    if told is not None:
        node.config.stash[LEFT_OUT].hear(told)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Under SQLQUEUE_TEST_STRICT=1 what was left out fails the run."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[TOLD] = session.config.stash[LEFT_OUT].told()
    elif session.exitstatus == pytest.ExitCode.OK and availability.strict() and _failing(session.config):
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
    left_out = config.stash[LEFT_OUT]
    full = [f"{left_out.full} tests that only `make test-all` runs (marked {FULL!r})"] if left_out.full else []
    return [f"{name}: {reason}" for name, reason in left_out.reasons.items()] + _skipped(config) + full


def _failing(config: pytest.Config) -> list[str]:
    """Of those, what a strict run may not leave out."""
    left_out = config.stash[LEFT_OUT]
    return [name for name in left_out.reasons if name not in left_out.allowed] + _skipped(config)


def _skipped(config: pytest.Config) -> list[str]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter else 0
    return [f"{skipped} skipped (listed below)"] if skipped else []
