"""Conditions on moments: a dialect's fragments, asked about the same rows one by one."""

from datetime import datetime, timedelta

import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import LONGEST_DELAY, UTC
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import spec_of
from sqlqueue.sql import Call, fill
from sqlqueue.testing.clock import START, ManualClock
from sqlqueue.testing.contract.harness import Contract, created
from sqlqueue.testing.contract.tables import CountedJob

#: Around the turn of a day, of a second and of a microsecond; every order of magnitude that texts may misplace.
STEPS = [timedelta(microseconds=1), timedelta(seconds=1), timedelta(hours=1), timedelta(days=1), timedelta(days=4000)]
MOMENTS = [START + sign * step for step in STEPS for sign in (-1, 1)]

ASKED = """
SELECT {asked} FROM {table}
ORDER BY {id}
"""

MEETS = "CASE WHEN {condition} THEN 1 ELSE 0 END"

FIRST = """
SELECT min({value}) FROM {table}
WHERE {condition}
"""

NOW_AND_LATER = """
SELECT {now}, {later}
"""


def now_and_later(broker: Broker, seconds: float | None) -> tuple[datetime, datetime | None]:
    """The database's *now* and so much later, of one statement."""
    column = spec_of(CountedJob).role(Role.RETRY_AFTER)
    assert column is not None
    dialect, sql = broker.dialect, QueueSQL(broker.dialect, spec_of(CountedJob), False)
    question = sql.statement(
        "ask", NOW_AND_LATER, width=2, writes=False, now=dialect.now(column), later=dialect.later(column, ":seconds")
    )
    with broker.pool.connection() as connection:
        ((now, later),) = connection.run([Call(question, {"seconds": seconds})])[0]
    decode = sql.decoder(Role.RETRY_AFTER)
    return decode(now), decode(later)


class MomentsContract(Contract):
    """Every row is due or ahead, by exactly one condition, and the conditions agree with Python's order."""

    def test_a_row_meets_one_condition_of_being_due_once_it_is_and_one_of_being_ahead_before(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        due_at: list[datetime | None] = [None, START, *MOMENTS]
        queue = created(broker, CountedJob, clock)
        queue.enqueue_many(CountedJob(due_at=moment, payload="1") for moment in due_at)
        dialect, sql, spec = broker.dialect, QueueSQL(broker.dialect, queue.spec, False), queue.spec
        column = spec.role(Role.RETRY_AFTER)
        assert column is not None
        now, moment = sql.now(Role.RETRY_AFTER), sql.moment(Role.RETRY_AFTER)
        due = dialect.due(moment, column, now)
        ahead = [condition for _, condition in dialect.ahead(moment, column, now)]
        asked = [fill(MEETS, {"condition": condition}) for condition in (*due, *ahead)]
        question = sql.statement("ask", ASKED, width=len(asked), writes=False, asked=", ".join(asked))
        values = {"now_retry_after": sql.now_encoder(Role.RETRY_AFTER)(START)}
        with broker.pool.connection() as connection:
            (rows,) = connection.run([Call(question, values)])
        answers = [(sum(row[: len(due)]), sum(row[len(due) :])) for row in rows]
        assert [(1, 0) if moment is None or moment <= START else (0, 1) for moment in due_at] == answers

    def test_a_lease_has_ended_at_its_moment_and_one_that_is_not_there_has_not(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        leases: list[datetime | None] = [None, START, *MOMENTS]
        queue = created(broker, CountedJob, clock)
        queue.enqueue_many(CountedJob(locked_until=moment, payload="1") for moment in leases)
        dialect, sql = broker.dialect, QueueSQL(broker.dialect, queue.spec, False)
        column = queue.spec.role(Role.LEASE)
        assert column is not None
        ended = dialect.ended(sql.column(Role.LEASE), column, sql.now(Role.LEASE))
        question = sql.statement("ask", ASKED, width=1, writes=False, asked=fill(MEETS, {"condition": ended}))
        with broker.pool.connection() as connection:
            (rows,) = connection.run([Call(question, {"now_lease": sql.now_encoder(Role.LEASE)(START)})])
        assert [(int(moment is not None and moment <= START),) for moment in leases] == rows

    def test_of_the_rows_ahead_the_first_is_found_and_read(self, broker: Broker, clock: ManualClock) -> None:
        queue = created(broker, CountedJob, clock)
        queue.enqueue_many(CountedJob(due_at=moment, payload="1") for moment in MOMENTS)
        dialect, sql = broker.dialect, QueueSQL(broker.dialect, queue.spec, False)
        column = queue.spec.role(Role.RETRY_AFTER)
        assert column is not None
        ranges = dialect.ahead(sql.moment(Role.RETRY_AFTER), column, sql.now(Role.RETRY_AFTER))
        values = {"now_retry_after": sql.now_encoder(Role.RETRY_AFTER)(START)}
        decode = sql.decoder(Role.RETRY_AFTER)
        found = []
        with broker.pool.connection() as connection:
            for value, condition in ranges:
                first = sql.statement("ask", FIRST, width=1, writes=False, value=value, condition=condition)
                found += [decode(row[0]) for row in connection.run([Call(first, values)])[0] if row[0] is not None]
        assert START + STEPS[0] == min(found)

    @pytest.mark.parametrize("seconds", [0, 1, 90, 0.001, 0.25, 1.1, 2.3, 0.57, 59.999, 86400.5, 1e-6, 0.1234567, 4e-8])
    def test_so_many_seconds_later_is_never_earlier_and_less_than_a_millisecond_late(
        self, broker: Broker, seconds: float
    ) -> None:
        now, later = now_and_later(broker, seconds)
        assert later is not None
        assert timedelta(0) <= later - (now + timedelta(seconds=seconds)) < timedelta(milliseconds=1)

    def test_no_seconds_later_is_now_itself(self, broker: Broker) -> None:
        """A row that is to wait for nothing is due at once."""
        now, later = now_and_later(broker, 0.0)
        assert now == later

    def test_later_is_known_up_to_the_last_year(self, broker: Broker) -> None:
        now, _ = now_and_later(broker, 0.0)
        far = timedelta(days=(datetime(9999, 12, 31, tzinfo=UTC) - now).days)
        for seconds in (LONGEST_DELAY, far.total_seconds()):
            now, later = now_and_later(broker, seconds)
            assert later == now + timedelta(seconds=seconds)

    def test_no_number_of_seconds_gives_no_moment(self, broker: Broker) -> None:
        _, later = now_and_later(broker, None)
        assert later is None
