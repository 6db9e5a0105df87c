"""The broker: a database, its connections in this process, and the queues on its tables."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from sqlqueue.clock import Duration
from sqlqueue.codec import Codec, JsonCodec
from sqlqueue.destination import Destination
from sqlqueue.dialect import Connection, Dialect, Hint, Pool, PoolSettings
from sqlqueue.errors import BrokerClosed, DeclarationError
from sqlqueue.handler import lease_seconds, poll_seconds, some_seconds, whole
from sqlqueue.plugins import dialect_for, manager, publisher_for
from sqlqueue.publisher import Publisher
from sqlqueue.queue import Queue, ServedQueue
from sqlqueue.roles import Role
from sqlqueue.schema import ddl_statements
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call, Statement, statement
from sqlqueue.strategies.transaction import after_commit

log = logging.getLogger("sqlqueue")

#: The payload of a notification that asks every consumer of the table to stop gracefully.
STOP_WORKER = "stop_worker"


class Broker:
    """A database, the connections to it in this process, and the queues on its tables.

    `source`: a URL (`postgresql://…`, `sqlite:///file.db`, `sqlite:////absolute/path.db`, `sqlite://` for one in
    memory) or a `psycopg_pool.ConnectionPool` of one's own. `pool_size`: connections at most of a pool that the
    broker opens (10). `poll_interval`: seconds between two claims of an idle queue (1). `notify`: wake by
    notifications, where the database has them. `lease`: seconds until a claimed row is due if its process dies (30).
    `codec`: messages to payloads (JSON). `statement_timeout`: seconds that a statement of the consumer's own may take
    (10).

    Nothing connects before the first use, and nothing is shared across a fork. A context manager: leaving it
    closes the broker.
    """

    def __init__(
        self,
        source: Any,
        *,
        pool_size: int = 10,
        poll_interval: Duration = 1.0,
        notify: bool = False,
        lease: Duration = 30.0,
        codec: Codec | None = None,
        statement_timeout: Duration = 10.0,
    ) -> None:
        self.poll_interval = poll_seconds(poll_interval)
        self.lease = lease_seconds(lease)
        self.notify = notify
        self.codec: Codec = JsonCodec() if codec is None else codec
        if not callable(getattr(self.codec, "encode", None)) or not callable(getattr(self.codec, "decoder", None)):
            raise DeclarationError(
                f"codec={codec!r} is no codec; give an object with encode(message) and decoder(type)"
            )
        self._settings = PoolSettings(
            size=whole(pool_size, "pool_size", 1),
            statement_timeout=some_seconds(statement_timeout, "statement_timeout", "would let nothing run"),
        )
        self.dialect: Dialect = dialect_for(source)
        self.closed = False
        self._queues: dict[tuple[int, str | None], Queue] = {}
        self._lock = threading.Lock()
        # By process: in a forked child the parent's have no threads.
        self._served: dict[int, list[ServedQueue]] = {}
        self._pools: dict[int, Pool] = {}
        self._publishers: dict[tuple[int, str], Publisher] = {}
        # The tables, by their description's id, whose handlers listen on channels of their own.
        self._notified: set[int] = set()
        self._notifications: dict[tuple[str, str], Sequence[Call]] = {}

    def __repr__(self) -> str:
        return f"<Broker {self.dialect.source}>"

    def __enter__(self) -> "Broker":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- queues -----------------------------------------------------------------------------------------------

    def queue(self, declared: "type | TableSpec", group: str | None = None) -> Queue:
        """The queue on a declared table; with `group` on the rows of that group. The same call gives the same queue."""
        spec = spec_of(declared)
        if group is not None and not spec.has(Role.GROUP):
            raise DeclarationError(
                f"table {spec.name!r}: group={group!r} is given, but no column plays the role 'group'; mark one with "
                "column.group()"
            )
        if self.notify:
            self.dialect.check_channel(spec.full_name, group)
        with self._lock:  # two threads that ask at once must get one queue
            return self._queues.setdefault((id(spec), group), Queue(self, spec, group))

    @property
    def queues(self) -> Sequence[Queue]:
        return tuple(self._queues.values())

    # -- connections ------------------------------------------------------------------------------------------

    @property
    def pool(self) -> Pool:
        """This process's connections. A forked child gets its own and leaves its parent's alone."""
        if self.closed:
            raise BrokerClosed(f"{self!r} is closed")
        pool = self._pools.get(os.getpid())
        if pool is None:
            with self._lock:  # one pool a process, whoever comes first
                pool = self._pools.setdefault(os.getpid(), self.dialect.open_pool(self._settings))
        return pool

    def adopt(self, connection: Any) -> Connection:
        """A caller's connection, to run statements in its transaction; `DeclarationError` for an unknown one."""
        driver = manager().hook.sqlqueue_driver_connection(obj=connection)
        adopted = None if driver is None else self.dialect.adopt(driver)
        if adopted is None:
            inside = "" if driver is None or driver is connection else f", in which there is {_kind(driver)},"
            raise DeclarationError(
                f"connection={_kind(connection)}{inside} is no connection to {self.dialect.source} that sqlqueue "
                "knows; give, to that database, the driver's own connection, a SQLAlchemy Session or Connection, or "
                "Django's connection"
            )
        return adopted

    def publisher(self, url: str) -> Publisher:
        """The publisher to a URL, such as `kafka://…`, which this process opens once and `close()` closes.

        It connects at its first use. Raises `BrokerClosed`, `PublisherNotFound` where nothing installed serves the URL,
        with the extra to install, and `DeclarationError` for a URL that says something wrong.
        """
        if self.closed:
            raise BrokerClosed(f"{self!r} is closed")
        with self._lock:  # two threads that ask at once must get one
            place = (os.getpid(), url)
            if place not in self._publishers:
                self._publishers[place] = publisher_for(url)
            return self._publishers[place]

    def close(self) -> None:
        """Close the connections and publishers that the broker opened. A pool of the user's stays open. May be called
        twice."""
        self.closed = True
        served_queues = tuple(self._served.get(os.getpid(), ()))
        for one in served_queues:
            one.let_go()
        for place in [place for place in self._publishers if place[0] == os.getpid()]:
            self._publishers.pop(place).close()
        pool = self._pools.pop(os.getpid(), None)
        if pool is not None:
            pool.close()
        for one in served_queues:
            one.wake()  # an idle consumer would not notice

    # -- tables -----------------------------------------------------------------------------------------------

    def ddl(self, declared: "type | TableSpec") -> str:
        """The recommended table and index for a declaration, and with `notify` the trigger, as a script."""
        spec = spec_of(declared)
        statements = ddl_statements(self.dialect, spec, notify=self.notify or id(spec) in self._notified)
        return "".join(f"{text.strip().rstrip(';')};\n" for text in statements)

    def create_tables(self) -> None:
        """Create the missing tables of all queues asked for so far. Existing tables stay as they are."""
        specs = {id(queue.spec): queue.spec for queue in self.queues}
        with self.pool.connection() as connection:
            for spec in specs.values():
                statements = ddl_statements(self.dialect, spec, notify=self.notify or id(spec) in self._notified)
                connection.run([Call(Statement("create table", text, ())) for text in statements])

    # -- wake-ups ---------------------------------------------------------------------------------------------

    def notify_of(self, spec: TableSpec) -> None:
        """Notify of this table's rows, whatever `notify` says: its handler listens on channels of its own."""
        self._notified.add(id(spec))

    def notifications(self, queue: Queue | Destination) -> Sequence[Call]:
        """The statement that wakes other programs when the insert, or the move, commits; none without `notify`."""
        if not self.notify and id(queue.spec) not in self._notified:
            return ()
        where = queue.spec.full_name, queue.group or ""
        if where not in self._notifications:
            sent = self.dialect.notification(*where)
            calls: Sequence[Call] = ()
            if sent is not None:
                notify = statement("notify", sent[0], {}, placeholder=self.dialect.placeholder, width=1)
                calls = (Call(notify, sent[1]),)
            self._notifications[where] = calls
        return self._notifications[where]

    def wake(self, queue: Queue | Destination) -> None:
        """Tell this process's consumers that the queue has a new row."""
        for served in self._served_on(queue.spec.full_name):
            if not queue.group or served.group is None or served.group == queue.group:
                served.wake()

    def hint(self, hint: Hint) -> None:
        """Wake this process's consumers of the table and group that got a row, or stop those that are asked to."""
        stops = hint.payload == STOP_WORKER
        if stops:
            log.info("asked to stop by a notification on %s", hint.channel)
        for served in self._served_on(hint.channel):
            if stops:
                served.stop()
            elif not hint.payload or served.group is None or served.group == hint.payload:
                served.wake()

    def _served_on(self, channel: str | None) -> Sequence[ServedQueue]:
        served = tuple(self._served.get(os.getpid(), ()))  # others may come and go meanwhile
        return served if channel is None else [one for one in served if channel in one.channels]

    def wake_after_commit(self, connection: Any, wake: Callable[[], None]) -> None:
        """Have `wake` called after the caller's commit, where its connection can tell of it."""
        if not after_commit(connection, wake):
            manager().hook.sqlqueue_after_commit(obj=connection, call=wake)

    def listen(self, served: ServedQueue) -> Callable[[], None]:
        """Have the queue's functions called for hints, and for each row that is enqueued through this broker. What is
        returned ends that."""
        served_queues = self._served.setdefault(os.getpid(), [])
        served_queues.append(served)
        return lambda: served_queues.remove(served)


def _kind(obj: Any) -> str:
    return f"{type(obj).__module__}.{type(obj).__qualname__}"
