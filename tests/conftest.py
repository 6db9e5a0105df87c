"""The fixtures `database`, `sqlite_database` and `postgres_database`: see tests/support/plugin.py."""

import importlib.util
import os
from pathlib import Path

import pytest

from tests.support import availability, leaving_out, pairwise, scratch
from tests.support.leaving_out import LEFT_OUT, OPTION


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(OPTION, action="store_true", help="run the tests marked `full` too, as `make test-all` does")


def pytest_configure(config: pytest.Config) -> None:
    for module in (scratch, pairwise, leaving_out):
        config.pluginmanager.register(module)
    config.pluginmanager.import_plugin("tests.support.plugin")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: three workers for two cores, for tests wait about half of their time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + cores // 2


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without psycopg, leave out the files and directories that say `postgres` in their name; they may import it."""
    if "postgres" in collection_path.name and importlib.util.find_spec("psycopg") is None:
        if collection_path.is_dir() or collection_path.name.startswith("test_"):
            name = str(collection_path.relative_to(config.rootpath))
            config.stash[LEFT_OUT].add(name, availability.NO_PSYCOPG)
        return True
    return None
