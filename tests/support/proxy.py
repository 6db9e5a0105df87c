"""A proxy in front of PostgreSQL."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import url_of
from tests.support.tcp_proxy import LIMIT, TCPProxy, running


class Proxy(TCPProxy):
    """One thread serves all connections. Every command is in force when it returns."""

    def __init__(self, url: str) -> None:
        super().__init__(self._to_server)
        self._target_url = url

    @property
    def url(self) -> str:
        """The database's URL by way of this proxy."""
        return url_of(self._target_url, host="127.0.0.1", port=str(self.port))

    def _to_server(self) -> socket.socket:
        target = conninfo_to_dict(self._target_url)
        host, port = str(target.get("hostaddr") or target.get("host")), int(target.get("port") or 5432)
        if not host.startswith("/"):
            return socket.create_connection((host, port), LIMIT)
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server


@contextmanager
def proxy(url: str, *, refusing: bool = False) -> Iterator[Proxy]:
    """A proxy in front of the server behind `url`; `refusing`: nobody gets in before `forward()`."""
    made = Proxy(url)
    with running(made, refusing=refusing):
        yield made
