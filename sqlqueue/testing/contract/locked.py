"""Rows that another program has locked: for dialects whose capabilities say `row_locks`."""

from time import monotonic
from typing import Any

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.testing.contract.harness import Contract, Database, created
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import CountedJob
from sqlqueue.testing.recorder import Recorder


class RowLockContract(Contract):
    """Whoever looks with SQL and locks a row holds up that row alone."""

    def test_a_locked_row_is_passed_over_and_claimed_soon_after_its_lock_goes(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder
    ) -> None:
        """SUITE 4: by the claim neither blocked, nor is the row asked for without pause."""
        queue = created(broker, held_by(strategy, CountedJob))
        handled: list[Any] = []
        queue.handler(handled.append)
        locked, free = queue.enqueue("locked"), queue.enqueue("free")
        person = database.connect()
        person.execute("BEGIN")
        person.execute("SELECT id FROM counted_jobs WHERE payload = '\"locked\"' FOR UPDATE").fetchall()
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", where=lambda event: event.id == free)
            recorder.clear()
            began = monotonic()
            recorder.wait_for("looked", count=3)
            assert monotonic() - began > 0.2  # 0.1 s and 0.2 s between them
            person.execute("ROLLBACK")
            recorder.wait_for("acknowledged", where=lambda event: event.id == locked, timeout=3)
        assert handled == ["free", "locked"]

    def test_many_locked_rows_hide_none_of_those_behind_them(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        handled: list[Any] = []
        queue.handler(workers=2)(handled.append)
        queue.enqueue_many(["locked"] * 8)
        for number in range(3):
            queue.enqueue(number)
        person = database.connect()
        person.execute("BEGIN")
        person.execute("SELECT id FROM counted_jobs WHERE payload = '\"locked\"' FOR UPDATE").fetchall()
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", count=3)
            assert sorted(handled) == [0, 1, 2]
            person.execute("ROLLBACK")
            recorder.wait_for("acknowledged", count=11)
        assert handled[3:] == ["locked"] * 8
