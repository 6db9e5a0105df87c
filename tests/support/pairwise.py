"""Which cases of a product `make test` runs; `make test-all` runs all of them.

It runs so many that every pair of values meets, or those that the test names, on every PostgreSQL there is:
`@pytest.mark.sample("sqlite-lease", "postgres-row_lock")`.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

from tests.support.leaving_out import FULL, row_locks_on_sqlite

#: Products of these are worth it: every other test takes milliseconds.
DATABASES = ("database", "sqlite_database", "postgres_database")

_PLACE = re.compile("postgres-(wheel|given)")


def covering(cases: Sequence[Mapping[str, Hashable]]) -> set[int]:
    """Places of cases in which every two values meet that meet in any case. Of equally good ones the first is taken."""
    pairs = [set(combinations(case.items(), 2)) for case in cases]
    left = set().union(*pairs)
    chosen: set[int] = set()
    while left:
        best = max(range(len(cases)), key=lambda place: (len(pairs[place] & left), -place))
        chosen.add(best)
        left -= pairs[best]
    return chosen


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as `full` what is no sample, and what pairs of values do not need: of tests on databases with three
    parameters or more."""
    products: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        spec = getattr(item, "callspec", None)
        if spec is None or row_locks_on_sqlite(item):
            continue
        sample = item.get_closest_marker("sample")
        if sample is not None:
            if _PLACE.sub("postgres", spec.id) not in sample.args:
                item.add_marker(FULL)
        elif any(name in spec.params for name in DATABASES):
            products[item.nodeid.partition("[")[0]].append(item)
    for product in products.values():
        _mark(product)


def _mark(product: Sequence[pytest.Item]) -> None:
    cases = [{name: _value(value) for name, value in item.callspec.params.items()} for item in product]  # type: ignore[attr-defined]
    names = [name for name in cases[0] if len({case[name] for case in cases}) > 1]
    if len(names) < 3:
        return
    chosen = covering([{name: case[name] for name in names} for case in cases])
    for place, item in enumerate(product):
        if place not in chosen:
            item.add_marker(FULL)


def _value(value: Any) -> Hashable:
    """Equal for the same values, in every worker: what shows its address is itself alone."""
    shown = repr(value)
    return id(value) if " at 0x" in shown else (type(value).__name__, shown)
