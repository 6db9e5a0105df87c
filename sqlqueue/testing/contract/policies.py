"""Policies: when a row that failed, or cannot be read, comes back."""

import json
from datetime import timedelta
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.errors import DecodeError
from sqlqueue.retry import Fixed
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.drain import drain


class PoliciesContract(Contract):
    """A failure goes by the policy of its exception's class."""

    @pytest.mark.parametrize(
        ("error", "after"),
        [
            (OSError("away"), 5),
            (TimeoutError("slow"), 5),
            (ConnectionError("refused"), 60),
            (ConnectionResetError("reset"), 60),
            (KeyError("name"), None),
            (ValueError("what nobody named"), 1),
        ],
        ids=["named", "base", "nearer", "nearer base", "given up", "default"],
    )
    def test_a_failure_goes_by_the_nearest_class_that_has_a_policy(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        error: Exception,
        after: float | None,
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)

        @queue.handler(retry={OSError: 5, ConnectionError: Fixed(60), LookupError: None, Exception: lambda *_: 1})
        def work(message: Any) -> None:
            raise error

        queue.enqueue("x")
        drain(broker)
        ((due, parked, attempt),) = shown(database, queue, "due_at", "error", "attempt")
        assert attempt == 1
        if after is None:
            assert parked == f"KeyError: {error}"
        else:
            assert (clock.now() + timedelta(seconds=after), None) == (due, parked)

    def test_without_a_match_the_default_policy_decides(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """Of a failure: between half a second and one. Of a row that cannot be read: none."""
        queue = created(broker, held_by(strategy, KeptJob), clock)

        @queue.handler(retry={OSError: 5}, on_decode_error={OSError: 5})
        def work(message: int) -> None:
            raise RuntimeError("broken")

        queue.enqueue(1)
        queue.enqueue("text")
        drain(broker)
        (failed, unread) = shown(database, queue, "due_at", "error")
        assert 0.5 <= (failed[0] - clock.now()).total_seconds() <= 1
        assert (failed[1], "DecodeError" in unread[1]) == (None, True)

    @pytest.mark.parametrize("kind", [DecodeError, json.JSONDecodeError], ids=["itself", "what it came from"])
    def test_a_row_that_cannot_be_read_goes_by_a_mapping_as_well(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, kind: type
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)
        queue.handler(on_decode_error={kind: 60})(_count)
        database.execute("INSERT INTO kept_jobs (payload) VALUES ('{')")
        drain(broker)
        due = clock.now() + timedelta(seconds=60)
        assert [(due, None, 1)] == shown(database, queue, "due_at", "error", "attempt")


def _count(message: int) -> None:
    raise AssertionError("what cannot be read reaches no handler")
