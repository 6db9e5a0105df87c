"""What only PostgreSQL has: notifications and backends."""

from typing import Any

from sqlqueue import Broker, Queue
from tests.consumer.helpers import LIMIT, Mail, wait_until
from tests.support.database import Database

# The listener's session, which asks now and then whether its peer is there.
LISTENERS = """
SELECT pid FROM pg_stat_activity
WHERE application_name = ? AND (query LIKE 'LISTEN%' OR query = 'SELECT 1') AND state = 'idle'
"""

TERMINATE = "SELECT pg_terminate_backend(?, 2000)"


def listeners(database: Database) -> list[int]:
    """The backends that listen for a broker of this database."""
    return [pid for (pid,) in database.execute(LISTENERS, database.name)]


def listening(database: Database) -> int:
    """Wait for the one listener there is to listen; its backend."""
    [pid] = wait_until(lambda: listeners(database))
    return pid


def terminate(database: Database, pid: int) -> None:
    assert database.execute(TERMINATE, pid) == [(True,)]


def notify(database: Database, channel: str, payload: str = "") -> None:
    database.execute("SELECT pg_notify(?, ?)", channel, payload)


def mail_queues(broker: Broker, database: Database, *groups: str) -> list[Queue]:
    """Queues of `mails` by group; the table has no trigger, so that only who says so notifies."""
    queues = [broker.queue(Mail, group=group) for group in groups]
    with Broker(database.url) as silent:
        silent.queue(Mail)
        silent.create_tables()
    return queues


class Ear:
    """A foreign program that listens."""

    def __init__(self, database: Database, *channels: str) -> None:
        self._database = database
        self._connection: Any = database.connect()
        for channel in (*channels, "the end"):
            self._connection.execute(f'LISTEN "{channel}"')

    def heard(self) -> list[tuple[str, str]]:
        """Channel and payload of all that was sent up to now."""
        notify(self._database, "the end")
        told: list[tuple[str, str]] = []
        for one in self._connection.notifies(timeout=LIMIT):
            if one.channel == "the end":
                return told
            told.append((one.channel, one.payload))
        raise AssertionError(f"the end was not heard within {LIMIT} s; only {told}")
