"""Tests that run by several claim strategies."""

from typing import Any

import pytest

from tests.support.plugin import params_for

#: Those whose deliveries hold a connection.
SEATED = ("row", "advisory")
EVERY = ("lease", *SEATED)


def by_strategy(*strategies: str) -> pytest.MarkDecorator:
    """Run a test, which asks for `database` and `strategy`, by each of these on every database that serves it."""
    return pytest.mark.parametrize(
        ("database", "strategy"),
        [
            pytest.param(*param.values, strategy, marks=param.marks, id=f"{param.id}-{strategy}")
            for strategy in strategies
            for param in _databases(strategy)
        ],
        indirect=["database"],
    )


def _databases(strategy: str) -> Any:
    if strategy == "row":
        return params_for("postgres-wheel", "postgres-given")
    return params_for("sqlite", "postgres-wheel", "postgres-given")
