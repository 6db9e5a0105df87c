"""Advisory locks that another system keeps, by functions of the user's."""

import threading
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.spec import AdvisoryLock
from sqlqueue.testing.contract.advisory import FILL, held_by
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import Stranger, key_of
from sqlqueue.testing.contract.tables import Job, KeyedJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@attrs.define
class Registry:
    """Locks that another system keeps. `elsewhere`: the keys that it holds for others."""

    elsewhere: frozenset[str] = frozenset()
    held: dict[str, Any] = attrs.field(factory=dict)
    answers: bool = True
    _mutex: threading.Lock = attrs.field(factory=threading.Lock)

    def lock(self, connection: Any, key: str) -> bool:
        with self._mutex:  # decided: whose the key is
            if key in self.elsewhere or key in self.held:
                return False
            self.held[key] = connection
            return True

    def unlock(self, connection: Any, key: str) -> bool:
        with self._mutex:  # decided: nobody's
            return self.held.pop(key, None) is connection and self.answers

    def keeps(self, template: str) -> AdvisoryLock:
        return AdvisoryLock(template, lock=self.lock, unlock=self.unlock)


class OwnLocksContract(Contract):
    """What those functions hold, and how they fail, the database cannot see."""

    def test_with_locks_of_the_users_own_only_those_are_held(self, broker: Broker, stranger: Stranger) -> None:
        """SUITE 44"""
        registry = Registry()
        queue = created(broker, held_by(Job, registry.keeps("one")))
        seen: list[Any] = []
        key = key_of(queue, "one")
        queue.handler(lambda message: seen.append((list(registry.held), stranger.finds_free(key))))
        queue.enqueue_many([1, 2])
        drain(broker)
        assert seen == [([key], [key])] * 2
        assert registry.held == {}

    def test_keys_that_another_systems_locks_hold_keep_none_of_the_rows_behind_them_waiting(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        """SUITE 43, PAINS 16: the database cannot see them."""
        keys = [f"keyed_jobs:{number}" for number in range(200)]
        queue = created(broker, held_by(KeyedJob, Registry(frozenset(keys)).keeps("{account}")))
        handled: list[Any] = []
        queue.handler(handled.append)
        database.execute(FILL, 200, 200)
        queue.enqueue("behind", key="free")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged")
            assert handled == ["behind"]

    def test_a_lock_that_was_not_held_any_more_closes_its_connection_and_the_next_row_has_another(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        """SUITE 48"""
        registry = Registry(answers=False)
        queue = created(broker, held_by(Job, registry.keeps("rows-{id}")))
        served: list[Any] = []
        queue.handler(lambda message: served.extend(registry.held.values()))
        queue.enqueue_many([1, 2])
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", count=2)
        first, second = served
        assert first is not second
        for connection in served:
            with pytest.raises(Exception, match=r"(?i)closed"):
                connection.execute("SELECT 1")
        assert shown(database, queue, "id") == []
        assert recorder.of("lease_lost", "gone") == []

    def test_a_release_that_fails_after_the_settlement_is_trouble_and_the_row_stays_settled(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        registry = Registry()

        def unlock(connection: Any, key: str) -> bool:
            registry.unlock(connection, key)
            raise RuntimeError("the other system is away")

        queue = created(broker, held_by(Job, AdvisoryLock("{id}", lock=registry.lock, unlock=unlock)))
        queue.handler(lambda message: None)
        queue.enqueue("x")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged")
            (trouble,) = recorder.wait_for("trouble")
        assert "the other system is away" in str(trouble.detail)
        assert recorder.of("lease_lost", "retried") == []
        assert shown(database, queue, "id") == []

    def test_a_lock_function_that_fails_is_trouble_and_keeps_no_row_from_running_later(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        registry, failures = Registry(), [RuntimeError("the other system is away")]

        def lock(connection: Any, key: str) -> bool:
            if failures:
                raise failures.pop()
            return registry.lock(connection, key)

        queue = created(broker, held_by(Job, AdvisoryLock("{id}", lock=lock, unlock=registry.unlock)))
        queue.handler(lambda message: None)
        queue.enqueue("x")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("trouble")
            recorder.wait_for("acknowledged")
        assert (shown(database, queue, "id"), registry.held) == ([], {})
