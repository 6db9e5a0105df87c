"""A relay in front of a PostgreSQL server that counts the statements which cross the wire, whoever sends them."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import url_of

#: What a client sends to have a statement run: Query of the simple protocol, Execute of the extended one.
RUNS = (b"Q", b"E")


@attrs.define
class Relay:
    """`url` leads through it; `statements` counts what was run on all connections since it opened."""

    url: str
    statements: int = 0
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def count(self, runs: int) -> None:
        with self._lock:  # connections count at once
            self.statements += runs


@attrs.define
class Messages:
    """The client's side of one connection, cut into messages: a type, a length, a body; the first has no type."""

    _rest: bytes = b""
    _typed: bool = False

    def runs(self, data: bytes) -> int:
        """How many statements `data` asks to run."""
        self._rest += data
        found = 0
        while len(self._rest) >= 5:
            begin = 1 if self._typed else 0
            end = begin + int.from_bytes(self._rest[begin : begin + 4], "big")
            if len(self._rest) < end:
                break
            found += self._typed and self._rest[:1] in RUNS
            self._rest, self._typed = self._rest[end:], True
        return found


@contextmanager
def relay(url: str) -> Iterator[Relay]:
    """A relay to the server behind `url`, without encryption, for clear messages are counted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        through = url_of(url, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        made = Relay(through)
        threads: list[threading.Thread] = []
        accepting = threading.Thread(target=_accept, args=(server, url, made, threads), name="relay")
        accepting.start()
        try:
            yield made
        finally:
            server.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join()


def _accept(server: socket.socket, url: str, made: Relay, threads: list[threading.Thread]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # it was shut down
            return
        upstream = _connect(url)
        for target, args in ((_up, (client, upstream, made)), (_down, (upstream, client))):
            threads.append(threading.Thread(target=target, args=args, name="relay"))
            threads[-1].start()


def _connect(url: str) -> socket.socket:
    given = conninfo_to_dict(url)
    host, port = str(given.get("host") or "127.0.0.1"), int(given.get("port") or 5432)
    if not host.startswith("/"):
        return socket.create_connection((host, port))
    upstream = socket.socket(socket.AF_UNIX)
    upstream.connect(f"{host}/.s.PGSQL.{port}")
    return upstream


def _up(client: socket.socket, upstream: socket.socket, made: Relay) -> None:
    messages = Messages()
    with client:
        while data := _receive(client):
            made.count(messages.runs(data))
            if not _sent(upstream, data):
                return
        try:
            upstream.shutdown(socket.SHUT_WR)
        except OSError:  # the server hung up first
            pass


def _down(upstream: socket.socket, client: socket.socket) -> None:
    with upstream:
        while data := _receive(upstream):
            if not _sent(client, data):
                return


def _sent(peer: socket.socket, data: bytes) -> bool:
    """Whether the peer was still there to take it."""
    try:
        peer.sendall(data)
    except OSError:
        return False
    return True


def _receive(peer: socket.socket) -> bytes:
    try:
        return peer.recv(65536)
    except OSError:
        return b""
