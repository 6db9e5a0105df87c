"""Several processes on one database: each row is handled once, or once more where its process was killed."""

import signal
from collections import Counter
from contextlib import ExitStack

from sqlqueue import Broker
from tests.consumer.helpers import Mail, jobs, wait_until
from tests.support.children import Child, child
from tests.support.database import Database

WORKER = "tests.crash.programs.worker"
WRITER = "tests.crash.programs.writer"
WORKERS = 4

LEFT = "SELECT count(*) FROM jobs"


def prepare(database: Database) -> None:
    with Broker(database.url) as broker:
        broker.queue(Mail, group="copies")
        jobs(broker)


def enqueue(database: Database, count: int) -> set[str]:
    """Many rows in one transaction; their ids as children say them."""
    with Broker(database.url) as broker:
        assert jobs(broker).enqueue_many(range(count)) == count
    return {str(id) for id in range(1, count + 1)}


def let_go(worker: Child, rows: int) -> None:
    """Let as many handlers that wait end, one after the other."""
    worker.tell("\n".join(["end"] * rows))


def ids(worker: Child, word: str) -> Counter[str]:
    return Counter(line.split()[1] for line in worker.said(word))


def test_two_processes_handle_each_row_once(database: Database) -> None:
    """PAINS 27"""
    prepare(database)
    with (
        child(WORKER, database.url, act="wait", workers=WORKERS, lease=30) as one,
        child(WORKER, database.url, act="wait", workers=WORKERS, lease=30) as other,
    ):
        every = enqueue(database, 5000 if database.kind == "sqlite" else 2000)
        for worker in (one, other):
            worker.wait_for("started", WORKERS)  # both take part
        for worker in (one, other):
            let_go(worker, len(every))
        wait_until(lambda: database.execute(LEFT) == [(0,)], 60)
        for worker in (one, other):
            worker.stop()
            assert ids(worker, "trouble") == Counter()
        assert ids(one, "started") + ids(other, "started") == Counter(every)
        assert ids(one, "acknowledged") + ids(other, "acknowledged") == Counter(every)


def test_a_process_that_is_killed_half_way_loses_no_row_and_only_those_in_work_are_begun_again(
    database: Database,
) -> None:
    """PAINS 27"""
    prepare(database)
    with (
        child(WORKER, database.url, workers=WORKERS) as victim,
        child(WORKER, database.url, act="wait", workers=WORKERS) as survivor,
    ):
        survivor.wait_for("looked")
        every = enqueue(database, 2000)
        survivor.wait_for("started", WORKERS)
        victim.wait_for("done", len(every) // 5)
        victim.signal(signal.SIGKILL)
        assert victim.exit_code() == -signal.SIGKILL
        let_go(survivor, len(every))
        wait_until(lambda: database.execute(LEFT) == [(0,)], 60)
        survivor.stop()
        assert ids(victim, "done").keys() | ids(survivor, "done").keys() == every
        again = {id for _, id, attempt in map(str.split, survivor.said("started")) if attempt != "1"}
        assert len(again) <= WORKERS  # no more were in work in the victim
        assert ids(victim, "started").keys() & ids(survivor, "started").keys() <= again
        assert ids(victim, "acknowledged").keys() & ids(survivor, "started").keys() == set()
        for worker in (victim, survivor):
            assert set(ids(worker, "started").values()) == {1}


def test_several_writers_and_a_consumer_on_one_file_never_find_it_locked(sqlite_database: Database) -> None:
    """PAINS 28: neither producers, nor handlers that write themselves, nor the consumer."""
    database, rows = sqlite_database, 200
    prepare(database)
    with ExitStack() as until_end:
        consumer = until_end.enter_context(child(WORKER, database.url, act="copy", workers=2, lease=30))
        writers = [until_end.enter_context(child(WRITER, database.url, rows=rows)) for _ in range(3)]
        for writer in writers:
            writer.wait_for("ready")
        for writer in writers:
            writer.tell("write")
        for writer in writers:
            assert writer.exit_code() == 0
            assert float(writer.said(f"wrote {rows}")[0].split()[2]) < 10.0
        wait_until(lambda: database.execute(LEFT) == [(0,)], 30)
        consumer.stop()
        assert [*consumer.said("trouble"), *consumer.said("log"), *consumer.said("retried")] == []
        assert len(consumer.said("started")) == 3 * rows
    assert database.execute("SELECT count(*) FROM mails") == [(3 * rows,)]
