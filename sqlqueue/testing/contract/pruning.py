"""Outbox tracking: records are marked, and pruned."""

from datetime import timedelta

from sqlqueue.broker import Broker
from sqlqueue.clock import DatabaseClock
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database
from sqlqueue.testing.contract.tracked import (
    Sent,
    message,
    processed,
    recorded,
    tracked,
)


class PruningContract(Contract):
    """What was processed long ago is deleted."""

    def test_what_was_processed_long_enough_ago_is_deleted(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        tracking = tracked(broker, clock=clock)
        tracking.publisher(Sent()).publish([message() for _ in range(4)])
        for id in ("1", "2", "3"):
            tracking.mark(id)
            clock.advance(60)
        assert tracking.prune(timedelta(minutes=3, seconds=1)) == 0
        assert tracking.prune(timedelta(minutes=2)) == 2
        assert [id for id, _, _ in recorded(database)] == [3, 4]
        assert (tracking.prune(0), tracking.prune(0)) == (1, 0)
        assert tracking.prune(timedelta.max) == 0
        assert [id for id, _, _ in recorded(database)] == [4]

    def test_many_are_deleted_in_several_transactions(self, database: Database, broker: Broker) -> None:
        tracking = tracked(broker)
        publisher = tracking.publisher(Sent())
        publisher.publish([message() for _ in range(2001)])
        database.execute("UPDATE outbox SET processed_at = '2020-01-01 00:00:00+00' WHERE id <> 7")
        assert tracking.prune(60) == 2000
        assert recorded(database) == [(7, "mail", None)]

    def test_a_mark_keeps_the_moment_of_the_first(self, database: Database, broker: Broker, clock: ManualClock) -> None:
        tracking = tracked(broker, clock=clock)
        tracking.publisher(Sent()).publish([message()])
        assert tracking.mark(1)
        before = list(database.execute("SELECT processed_at FROM outbox"))
        clock.advance(5)
        assert not tracking.mark("1")
        assert list(database.execute("SELECT processed_at FROM outbox")) == before
        assert (tracking.seen(1), tracking.seen("1"), tracking.seen("2"), tracking.seen("x")) == (
            True,
            True,
            False,
            False,
        )
        assert (tracking.mark("no"), tracking.mark("9" * 30), processed(database)) == (False, False, [1])

    def test_the_databases_clock_says_when(self, database: Database, broker: Broker) -> None:
        tracking = tracked(broker, clock=DatabaseClock())
        tracking.publisher(Sent()).publish([message()])
        assert tracking.mark("1")
        assert (tracking.prune(60), tracking.prune(0)) == (0, 1)
