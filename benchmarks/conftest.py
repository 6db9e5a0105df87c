"""Benchmarks use the databases of the tests: see tests/support/plugin.py."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.support.plugin")
