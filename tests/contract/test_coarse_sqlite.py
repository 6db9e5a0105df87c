"""Leases in whole seconds since the epoch, and in fractions of them."""

from datetime import timedelta

import attrs
import pytest

from sqlqueue import Broker, Role, TableSpec
from sqlqueue.spec import spec_of
from sqlqueue.testing.contract.harness import created
from sqlqueue.testing.contract.tables import CountedJob, Job
from tests.contract import coarse
from tests.support.database import Database


def _with_lease(declared: type, kind: type) -> TableSpec:
    spec = spec_of(declared)
    columns = [attrs.evolve(one, type=kind) if one.role is Role.LEASE else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns)


@pytest.mark.parametrize(("kind", "step"), [(int, timedelta(seconds=1)), (float, timedelta(microseconds=1))])
def test_a_token_is_rounded_up_to_what_its_column_keeps(sqlite_database: Database, kind: type, step: timedelta) -> None:
    """SUITE 23"""
    with Broker(sqlite_database.url) as broker:
        spec = created(broker, _with_lease(Job, kind)).spec
        coarse.tokens_survive(sqlite_database, broker, spec, step)


def test_a_coarse_lease_leaves_the_delays_of_a_finer_column_alone(sqlite_database: Database) -> None:
    """SUITE 82"""
    with Broker(sqlite_database.url) as broker:
        spec = created(broker, _with_lease(CountedJob, int)).spec
        coarse.delays_keep_their_own_precision(sqlite_database, broker, spec)
