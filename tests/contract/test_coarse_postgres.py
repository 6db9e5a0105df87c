"""Leases in a `timestamptz` that keeps fewer digits."""

from datetime import timedelta

import pytest

from sqlqueue import Broker
from sqlqueue.spec import spec_of
from sqlqueue.testing.contract.harness import created
from sqlqueue.testing.contract.tables import CountedJob, Job
from tests.contract import coarse
from tests.support.database import Database

STEPS = {0: timedelta(seconds=1), 3: timedelta(milliseconds=1), 6: timedelta(microseconds=1)}


@pytest.mark.parametrize("digits", STEPS)
def test_a_token_is_rounded_up_to_what_its_column_keeps(postgres_database: Database, digits: int) -> None:
    """SUITE 23"""
    with Broker(postgres_database.url) as broker:
        created(broker, Job)
        postgres_database.execute(f"ALTER TABLE jobs ALTER locked_until TYPE timestamptz({digits})")
        coarse.tokens_survive(postgres_database, broker, spec_of(Job), STEPS[digits])


def test_a_coarse_lease_leaves_the_delays_of_a_finer_column_alone(postgres_database: Database) -> None:
    """SUITE 82"""
    with Broker(postgres_database.url) as broker:
        created(broker, CountedJob)
        postgres_database.execute("ALTER TABLE counted_jobs ALTER locked_until TYPE timestamptz(0)")
        coarse.delays_keep_their_own_precision(postgres_database, broker, spec_of(CountedJob))
