"""The fixtures `database`, `sqlite_database` and `postgres_database`: see tests/support/plugin.py."""

import importlib.util
from pathlib import Path

import pytest

from tests.support import availability


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.support.plugin")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without psycopg, leave out the files and directories that say `postgres` in their name; they may import it."""
    if "postgres" in collection_path.name and importlib.util.find_spec("psycopg") is None:
        if collection_path.is_dir() or collection_path.name.startswith("test_"):
            name = str(collection_path.relative_to(config.rootpath))
            config.stash[availability.LEFT_OUT].add(name, availability.NO_PSYCOPG)
        return True
    return None
