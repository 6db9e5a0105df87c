"""What a dialect promises: its capabilities, its connections and its judgement, each promise tried."""

import threading
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import UTC
from sqlqueue.dialect import Hint, Trouble
from sqlqueue.errors import DeclarationError
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import insert
from sqlqueue.strategies.claim import Turn
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, Holder, OpenBroker, created, shown
from sqlqueue.testing.contract.tables import Job, NamedJob

# Plain statements, in words that every database knows.
INSERT = Statement("insert", "INSERT INTO named_jobs (id, payload) VALUES ('1', 'x')", ())
INSERT_OTHER = Statement("insert", "INSERT INTO named_jobs (id, payload) VALUES ('2', 'y')", ())
UPDATE = Statement("update", "UPDATE named_jobs SET payload = 'z'", ())
COUNT = Statement("count", "SELECT count(*) FROM named_jobs", (), width=1, writes=False)
NONSENSE = Statement("nonsense", "SELECT nothing FROM nowhere", (), width=1, writes=False)

#: Locks the first row; the clause is the dialect's.
LOCK = "SELECT id FROM named_jobs ORDER BY id LIMIT 1 {skip_locked}"


class CapabilitiesContract(Contract):
    """`Dialect.capabilities` and the calls of the border, one by one."""

    def test_locked_rows_are_passed_over_where_row_locks_are_promised_and_no_clause_says_so_elsewhere(
        self, broker: Broker
    ) -> None:
        dialect = broker.dialect
        created(broker, NamedJob).enqueue_many([NamedJob(id="1", payload="x"), NamedJob(id="2", payload="y")])
        lock = Call(Statement("lock", fill(LOCK, {"skip_locked": dialect.skip_locked}), (), width=1, writes=False))
        with broker.pool.connection() as first, broker.pool.connection() as second:
            first.driver.execute("BEGIN")
            adopted = dialect.adopt(first.driver)
            assert adopted is not None
            taken = [adopted.run([lock])[0], second.run([lock])[0]]
            first.driver.execute("ROLLBACK")
        assert dialect.capabilities.row_locks is bool(dialect.skip_locked)
        assert ([[("1",)], [("2",)]] if dialect.capabilities.row_locks else [[("1",)], [("1",)]]) == taken

    def test_claims_that_run_together_take_different_rows_where_that_is_promised_and_wait_elsewhere(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        queue = created(open_broker(), Job, clock)
        impatient = Holder(created(open_broker(statement_timeout=0.2), Job, clock))
        ids = [queue.enqueue("x"), queue.enqueue("y")]
        other = database.connect()
        other.execute("BEGIN")
        (first,) = Holder(queue).lease.turn(queue.broker.adopt(other), Turn(limit=1, now=clock.now())).claims
        if queue.broker.dialect.capabilities.concurrent_claims:
            (second,) = impatient.claim(1)
            other.execute("COMMIT")
        else:
            with pytest.raises(Exception, match=r".") as waited:
                impatient.claim(1)
            assert Trouble.TRANSIENT is queue.broker.dialect.classify(waited.value)
            other.execute("COMMIT")
            (second,) = impatient.claim(1)
        assert ids == [first.id, second.id]

    def test_another_programs_row_wakes_whoever_waits_where_there_is_a_waker(self, open_broker: OpenBroker) -> None:
        broker, other = open_broker(notify=True), open_broker(notify=True)
        dialect, queue = broker.dialect, created(other, Job)
        hints: list[Hint] = []
        ready, woken = threading.Event(), threading.Event()

        def wake(hint: Hint) -> None:
            hints.append(hint)
            (woken if ready.is_set() else ready).set()

        sends = dialect.notification("jobs", "") is not None
        waker = dialect.waker(broker.pool, ["jobs"], wake, notify=True)
        assert dialect.capabilities.notifies is sends
        if waker is None:
            assert (sends, dialect.capabilities.watches) == (False, False)
            return
        waker.start()
        try:
            assert ready.wait(LIMIT)  # it wakes once when it has connected, for what came before
            assert dialect.capabilities.watches is waker.certain
            queue.enqueue("x")
            assert woken.wait(LIMIT)
        finally:
            waker.stop()
        assert {None, "jobs"} >= {hint.channel for hint in hints}

    def test_moments_as_far_apart_as_promised_are_told_apart_and_come_back_as_they_were(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        queue = created(broker, Job, clock)
        precision = broker.dialect.capabilities.time_precision
        holder = Holder(queue, seconds=30 + precision)
        queue.enqueue_many(["x", "y"])
        claims = [*Holder(queue).claim(1), *holder.claim(1)]
        assert [(claim.expires,) for claim in claims] == shown(database, queue, "locked_until")
        first, second = (claim.expires for claim in claims)
        assert first
        assert second
        assert precision == pytest.approx((second - first).total_seconds())

    def test_the_calls_of_a_run_are_committed_together_or_not_at_all(self, database: Database, broker: Broker) -> None:
        queue = created(broker, NamedJob)
        with broker.pool.connection() as connection:
            with pytest.raises(Exception, match=r".") as refused:
                connection.run([Call(INSERT), Call(INSERT_OTHER), Call(INSERT)])
            assert Trouble.PERMANENT is broker.dialect.classify(refused.value)
            assert connection.run([Call(COUNT)]) == [[(0,)]]
            assert connection.run([Call(INSERT), Call(INSERT_OTHER), Call(COUNT)])[1:] == [[], [(2,)]]
            assert shown(database, queue, "id") == [("1",), ("2",)]
            connection.run([Call(UPDATE)], durable=False)
        assert shown(database, queue, "payload") == [("z",), ("z",)]

    def test_what_follows_many_rows_belongs_to_their_transaction_and_runs_only_where_there_are_any(
        self, database: Database, broker: Broker
    ) -> None:
        spec = created(broker, NamedJob).spec
        statement = insert(broker.dialect, spec, spec.columns, returning=False)
        rows = [("1", None, "x"), ("2", None, "y")]
        with broker.pool.connection() as connection:
            for given, then in ((rows, NONSENSE), ([*rows, rows[0]], UPDATE)):
                with pytest.raises(Exception, match=r"."):
                    connection.insert_many(statement, spec, spec.columns, given, then=[Call(then)])
            assert connection.run([Call(COUNT)]) == [[(0,)]]
            assert connection.insert_many(statement, spec, spec.columns, iter([]), then=[Call(NONSENSE)]) == 0
            assert connection.insert_many(statement, spec, spec.columns, iter(rows), then=[Call(UPDATE)]) == 2
        assert shown(database, broker.queues[0], "id", "payload") == [("1", "z"), ("2", "z")]

    def test_a_lent_connection_goes_back_as_it_came_whatever_its_borrower_left(
        self, database: Database, open_broker: OpenBroker
    ) -> None:
        broker = open_broker(pool_size=1)
        queue = created(broker, NamedJob)
        with broker.pool.connection() as connection:
            connection.driver.execute("BEGIN")
            connection.driver.execute("INSERT INTO named_jobs (id, payload) VALUES ('0', 'left')")
        with broker.pool.connection() as connection:
            connection.run([Call(INSERT)])
        assert shown(database, queue, "id") == [("1",)]

    def test_a_connection_beside_the_pool_serves_while_all_of_the_pool_is_lent(
        self, database: Database, open_broker: OpenBroker
    ) -> None:
        broker = open_broker(pool_size=1)
        queue = created(broker, NamedJob)
        with broker.pool.connection(), broker.pool.direct() as beside:
            beside.run([Call(INSERT)])
            driver = beside.driver
        assert shown(database, queue, "id") == [("1",)]
        with pytest.raises(Exception, match=r"."):
            driver.execute("SELECT 1")

    def test_a_failing_statement_leaves_an_adopted_connection_in_the_callers_transaction(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, NamedJob)
        ours = database.connect()
        adopted = broker.dialect.adopt(ours)
        assert adopted is not None
        assert ours is adopted.driver
        ours.execute("BEGIN")
        adopted.run([Call(INSERT), Call(INSERT_OTHER)])
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            adopted.run([Call(INSERT)])
        ours.execute("ROLLBACK")
        assert shown(database, queue, "id") == []

    def test_what_is_no_connection_of_this_database_is_not_adopted(self, broker: Broker) -> None:
        assert None is broker.dialect.adopt(object())
        with pytest.raises(DeclarationError, match="connection="):
            broker.adopt(object())

    def test_a_statement_that_somebody_keeps_waiting_is_transient_trouble(
        self, database: Database, open_broker: OpenBroker
    ) -> None:
        broker = open_broker(statement_timeout=0.2)
        created(broker, NamedJob).enqueue(NamedJob(id="1", payload="x"))
        person = database.connect()
        person.execute("BEGIN")
        person.execute("UPDATE named_jobs SET payload = 'mine'")
        with broker.pool.connection() as connection:
            with pytest.raises(Exception, match=r".") as waited:
                connection.run([Call(UPDATE)])
            person.execute("ROLLBACK")
            connection.run([Call(UPDATE)])
        assert Trouble.TRANSIENT is broker.dialect.classify(waited.value)

    def test_a_pool_that_is_all_lent_is_exhausted_and_a_closed_one_is_closed(self, open_broker: OpenBroker) -> None:
        broker = open_broker(pool_size=1)
        pool, classify = broker.pool, broker.dialect.classify
        assert pool.size == 1
        with pool.connection(), pytest.raises(Exception, match=r".") as exhausted, pool.connection(timeout=0.05):
            pass
        with pool.connection() as connection, pytest.raises(Exception, match=r".") as wrong:
            connection.run([Call(NONSENSE)])
        pool.close()
        with pytest.raises(Exception, match=r".") as closed, pool.connection():
            pass
        troubles = [classify(caught.value) for caught in (exhausted, wrong, closed)]
        assert troubles == [Trouble.EXHAUSTED, Trouble.PERMANENT, Trouble.CLOSED]
        assert Trouble.PERMANENT is classify(RuntimeError("of somebody else"))

    def test_the_clock_of_the_database_is_aware_utc_and_goes_forward(self, broker: Broker) -> None:
        with broker.pool.connection() as connection:
            first, second = (broker.dialect.read_clock(connection) for _ in range(2))
        assert [first.tzinfo, second.tzinfo] == [UTC, UTC]
        assert first <= second

    def test_every_sort_of_name_is_quoted(self, database: Database, broker: Broker) -> None:
        spec = attrs.evolve(
            created(broker, NamedJob).spec,
            name='Select "from" {x} :y ?1 %s',
            columns=[
                attrs.evolve(one, name=f'{one.field} "Größe" :{one.field}') for one in broker.queues[0].spec.columns
            ],
        )
        queue = created(broker, spec)
        queue.enqueue(NamedJob(id="1", payload="x"))
        holder = Holder(queue)
        (claim,) = holder.claim()
        assert list(holder.extend(claim)) == []
        assert [claim.id] == ["1"]

    def test_many_rows_by_the_fastest_way_are_those_of_single_inserts(self, database: Database, broker: Broker) -> None:
        queue = created(broker, NamedJob)
        texts: list[Any] = ["", "\\N", "\\.", "a\tb\nc\\d", "'", '"', "Größe ✓", "NULL", "{x}", ":y", "?1", "%s"]
        queue.enqueue_many(NamedJob(id=f"m{number:02}", payload=text) for number, text in enumerate(texts))
        for number, text in enumerate(texts):
            queue.enqueue(NamedJob(id=f"s{number:02}", payload=text))
        assert [(text,) for text in texts * 2] == shown(database, queue, "payload")
