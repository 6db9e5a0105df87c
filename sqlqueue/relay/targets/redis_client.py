"""redis-py's client, whose waits end together: its own settings limit each of them by itself."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import attrs
import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.retry import Retry

from sqlqueue.relay.targets.tls import TLS

#: Seconds of the shortest wait; 0 would be one that never waits.
SHORTEST = 0.001


class Limit(threading.local):
    """When the thread's waits end, by the monotonic clock."""

    until: float = 0.0


_limit = Limit()


def _left() -> float:
    return max(SHORTEST, _limit.until - monotonic())


class Limited:
    """A connection that waits no longer than its thread may."""

    def connect(self, *args: Any, **settings: Any) -> None:
        for wait in ("socket_connect_timeout", "socket_timeout"):
            setattr(self, wait, _left())
        super().connect(*args, **settings)  # type: ignore[misc]  # it is a Connection

    def send_packed_command(self, *args: Any, **settings: Any) -> None:
        self._wait_no_longer()
        super().send_packed_command(*args, **settings)  # type: ignore[misc]

    def read_response(self, *args: Any, **settings: Any) -> Any:
        self._wait_no_longer()
        return super().read_response(*args, **settings)  # type: ignore[misc]

    def _wait_no_longer(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.settimeout(_left())


class Plain(Limited, Connection): ...


class Encrypted(Limited, SSLConnection): ...


@attrs.define(eq=False)
class Client:
    """A connection for each thread that is at work. It cannot close one under a thread, so one at work when this is
    closed is closed when it is back, which is in its time."""

    _redis: "redis.Redis"
    _closed: bool = attrs.field(init=False, default=False)

    def run(self, fill: Callable[[Any], None], until: float) -> list[Any]:
        """The replies to what `fill` puts into a transaction. Raises redis-py's `TimeoutError` at `until`."""
        _limit.until = until
        try:
            with self._redis.pipeline(transaction=True) as pipeline:
                fill(pipeline)
                return pipeline.execute(raise_on_error=False)
        finally:
            if self._closed:
                self._hang_up()

    def close(self) -> None:
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        self._redis.connection_pool.disconnect(inuse_connections=False)


def client(tls: TLS | None, **settings: Any) -> Client:
    """A client that connects at its first use. `settings`: redis-py's."""
    once = Retry(NoBackoff(), 0)  # a second try by itself might add all of them again
    made = redis.Redis(retry=once, **_secured(tls), **settings)
    made.connection_pool.connection_class = Plain if tls is None else Encrypted
    return Client(made)


def _secured(tls: TLS | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": tls.cafile,  # it trusts the system's as well
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,  # not its default before redis-py 6
    }
