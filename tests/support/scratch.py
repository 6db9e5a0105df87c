"""A directory for the whole run, which the workers of pytest-xdist share; the private PostgreSQL stands in it."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

SCRATCH = pytest.StashKey[Path]()
NAME = "sqlqueue_scratch"


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", {}).get(NAME)
    config.stash[SCRATCH] = Path(given or tempfile.mkdtemp(prefix="sqlqueue-"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput[NAME] = str(node.config.stash[SCRATCH])


def pytest_unconfigure(config: pytest.Config) -> None:
    """All workers have ended."""
    scratch = config.stash[SCRATCH]
    if hasattr(config, "workerinput"):
        return
    try:
        if (scratch / "lock").exists():  # somebody asked for PostgreSQL
            from tests.support.postgres import stop_wheel

            stop_wheel(scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
