"""The end of a consumer, or of its broker: what is under way takes effect, and the rest goes back."""

import threading
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer, Stopped
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Trouble
from sqlqueue.errors import BrokerClosed
from sqlqueue.outcome import Retry
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, Holder, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, Job, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: Under a row lock nobody else can lock a row in work.
HOLDS_NO_TRANSACTION = pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK], indirect=True)


def _wait_until_lent(broker: Broker) -> None:
    """Wait until somebody has the only connection of the pool."""
    ends = monotonic() + LIMIT
    while monotonic() < ends:
        try:
            with broker.pool.connection(timeout=0.05):
                pass
        except Exception as error:  # sorted by what the dialect makes of it
            if broker.dialect.classify(error) is not Trouble.EXHAUSTED:
                raise
            return
    raise AssertionError(f"nobody took the connection for {LIMIT} s")


class EndingContract(Contract):
    """Nothing that was acknowledged is lost, and nothing that was not is gone."""

    def test_rows_claimed_ahead_go_back_when_the_consumer_stops_with_their_attempts(
        self, database: Database, broker: Broker, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 26, SUITE 25: at once, while the handler still runs."""
        queue = created(broker, CountedJob, clock)
        seen: list[Any] = []

        @queue.handler(prefetch=9)
        def work(message: int) -> None:
            recorder.wait_for("released", count=4)
            seen.extend(shown(database, queue, "payload", "locked_until", "attempt"))

        queue.enqueue_many(range(5))
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("started")
        assert Stopped(settled=1, given_back=4, abandoned=0) == consumer.stop()
        expires = clock.now() + timedelta(seconds=30)
        assert [("0", expires, 1), *[(str(number), None, 0) for number in range(1, 5)]] == seen
        assert [(str(number),) for number in range(1, 5)] == shown(database, queue, "payload")

    def test_a_delivery_in_work_past_the_drain_timeout_is_given_back_and_its_late_ack_changes_nothing(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        recorder: Recorder,
    ) -> None:
        """SUITE 31"""
        queue = created(broker, held_by(strategy, CountedJob), clock)
        stopped = threading.Event()
        deliveries = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            deliveries.append(delivery)
            assert stopped.wait(LIMIT)

        queue.enqueue("slow")
        consumer = Consumer(broker, observers=[recorder], drain_timeout=0.05)
        consumer.start()
        recorder.wait_for("started")
        assert Stopped(settled=0, given_back=1, abandoned=1) == consumer.stop()
        before = shown(database, queue, "payload", "due_at", "attempt")
        assert before == [('"slow"', None, 0)]
        check_unheld(database, queue, stranger)
        assert [delivery.lost for delivery in deliveries] == [True]
        stopped.set()
        recorder.wait_for("lease_lost")
        assert before == shown(database, queue, "payload", "due_at", "attempt")
        check_unheld(database, queue, stranger)

    def test_a_row_given_back_is_handled_elsewhere_at_once_and_a_late_failure_changes_nothing(
        self, database: Database, open_broker: OpenBroker, strategy: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 49, SUITE 154"""
        broker, other = open_broker(), open_broker()
        queue, elsewhere = (created(one, held_by(strategy, CountedJob), clock) for one in (broker, other))
        stopped, attempts = threading.Event(), []

        @queue.handler
        def work(message: Any) -> None:
            assert stopped.wait(LIMIT)
            raise RuntimeError("too late")

        @elsewhere.handler
        def work_there(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)

        queue.enqueue("slow")
        consumer = Consumer(broker, observers=[recorder], drain_timeout=0.05)
        consumer.start()
        recorder.wait_for("started")
        consumer.stop()
        assert Stopped(settled=1, given_back=0, abandoned=0) == drain(other)
        stopped.set()
        recorder.wait_for("lease_lost")
        assert attempts == [1]
        assert shown(database, queue, "id") == []

    def test_a_stop_waits_for_the_last_of_the_handlers_in_work_and_claims_no_more(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, recorder: Recorder
    ) -> None:
        """SUITE 148, SUITE 149, SUITE 151"""
        queue = created(broker, held_by(strategy, KeptJob))
        gates = [threading.Event(), threading.Event()]
        handled: list[int] = []

        @queue.handler(workers=2)
        def work(number: int) -> None:
            handled.append(number)
            assert gates[number].wait(LIMIT)

        queue.enqueue_many(range(20))
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("started", count=2)
        stops: list[Stopped] = []
        stopping = threading.Thread(target=lambda: stops.append(consumer.stop()))
        consumer.request_stop()
        stopping.start()
        gates[0].set()
        recorder.wait_for("acknowledged")
        stopping.join(0.2)
        assert (stopping.is_alive(), stops) == (True, [])
        gates[1].set()
        stopping.join(LIMIT)
        assert [Stopped(settled=2, given_back=0, abandoned=0)] == stops
        assert sorted(handled) == [0, 1]
        check_unheld(database, queue, stranger)
        assert [done is not None for (done,) in shown(database, queue, "done_at")] == [True] * 2 + [False] * 18
        with broker.pool.connection() as connection:
            assert not connection.closed

    def test_a_closed_broker_holds_no_row_and_a_late_ack_says_that_it_is_closed(
        self,
        database: Database,
        open_broker: OpenBroker,
        seated: str,
        stranger: Stranger,
        clock: ManualClock,
        recorder: Recorder,
    ) -> None:
        """SUITE 152: another broker can take the row as soon as it is closed."""
        broker, other = open_broker(), open_broker()
        queue, elsewhere = (created(one, held_by(seated, CountedJob), clock) for one in (broker, other))
        closed, attempts = threading.Event(), []

        @queue.handler
        def work(message: Any) -> None:
            assert closed.wait(LIMIT)

        @elsewhere.handler
        def work_there(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)

        queue.enqueue("x")
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("started")
        broker.close()
        check_unheld(database, elsewhere, stranger)
        assert Stopped(settled=1, given_back=0, abandoned=0) == drain(other)
        closed.set()
        recorder.wait_for("lease_lost")
        (closing,) = recorder.wait_for("trouble")
        assert "closed" in str(closing.detail)
        assert Stopped(settled=0, given_back=1, abandoned=0) == consumer.stop()
        assert (recorder.of("acknowledged"), attempts) == ([], [1])

    def test_a_closed_broker_settles_nothing_and_the_row_comes_back_when_its_lease_ends(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 31, SUITE 153"""
        broker, other = open_broker(), open_broker()
        queue, elsewhere = created(broker, CountedJob, clock), created(other, CountedJob, clock)
        closed = threading.Event()

        @queue.handler
        def work(message: Any) -> None:
            assert closed.wait(LIMIT)

        queue.enqueue("x")
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("started")
        broker.close()
        closed.set()
        recorder.wait_for("trouble")
        consumer.stop()
        with pytest.raises(BrokerClosed):
            queue.enqueue("y")
        assert shown(database, elsewhere, "payload", "attempt") == [('"x"', 1)]
        holder = Holder(elsewhere)
        assert list(holder.claim()) == []
        clock.advance(30)
        assert [claim.attempt for claim in holder.claim()] == [2]

    @HOLDS_NO_TRANSACTION
    def test_a_settlement_under_way_takes_effect_and_the_stop_waits_for_it(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder
    ) -> None:
        """SUITE 94"""
        queue = created(broker, held_by(strategy, Job))
        person, locked = database.connect(), threading.Event()

        @queue.handler
        def work(message: Any) -> None:
            assert locked.wait(LIMIT)

        queue.enqueue("x")
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("started")
        person.execute("BEGIN")
        person.execute("UPDATE jobs SET payload = payload")  # the settlement waits for that
        locked.set()
        stops: list[Stopped] = []
        stopping = threading.Thread(target=lambda: stops.append(consumer.stop()))
        stopping.start()
        stopping.join(0.2)
        assert (stopping.is_alive(), recorder.of("acknowledged")) == (True, [])
        person.execute("ROLLBACK")
        stopping.join(LIMIT)
        assert [Stopped(settled=1, given_back=0, abandoned=0)] == stops
        assert shown(database, queue, "id") == []

    def test_a_settlement_under_way_takes_effect_although_the_broker_is_closed(
        self, database: Database, open_broker: OpenBroker, recorder: Recorder
    ) -> None:
        """SUITE 94"""
        broker, elsewhere = open_broker(pool_size=1), created(open_broker(), Job)
        queue, person, locked = created(broker, Job), database.connect(), threading.Event()
        queue.handler(lambda message: None if locked.wait(LIMIT) else Retry())
        queue.enqueue("x")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("started")
            person.execute("BEGIN")
            person.execute("UPDATE jobs SET payload = payload")  # the settlement waits for that
            locked.set()
            _wait_until_lent(broker)
            broker.close()
            person.execute("ROLLBACK")
            recorder.wait_for("acknowledged")
        assert shown(database, elsewhere, "id") == []
