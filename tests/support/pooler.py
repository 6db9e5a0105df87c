"""A small pooler in transaction mode in front of PostgreSQL, for every machine; it reads the frames of protocol 3."""

import os
import random
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from selectors import EVENT_READ, DefaultSelector
from typing import Any

import attrs
import psycopg

from tests.support.postgres import url_of

LIMIT = 10.0  # seconds

STARTUP, TERMINATE = b"", b"X"
ENDS_TURN = b"QSF"  # Query, Sync, FunctionCall: each is answered by one ReadyForQuery
READY, IDLE = b"Z", b"I"
COPY_IN, SYNC = b"G", b"S"
PARAMETERS = ("server_version", "client_encoding", "standard_conforming_strings", "integer_datetimes", "TimeZone")


def frame(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


@attrs.define(eq=False)
class End:
    """One side of a connection: whole frames out of what comes."""

    socket: socket.socket
    started: bool = True
    _data: bytes = b""

    def frames(self) -> list[tuple[bytes, bytes]] | None:
        """Kind and bytes of each that is there now; None where the peer has gone."""
        try:
            data = self.socket.recv(65536)
        except OSError:
            return None
        self._data += data
        found = []
        while (one := self._take()) is not None:
            found.append(one)
        return found if data else None

    def _take(self) -> tuple[bytes, bytes] | None:
        head = 1 if self.started else 0  # the first one says no kind
        if len(self._data) < head + 4:
            return None
        size: int = head + struct.unpack_from("!I", self._data, head)[0]
        if len(self._data) < size:
            return None
        kind, one = self._data[:head], self._data[:size]
        self._data = self._data[size:]
        self.started = True
        return kind, one


@attrs.define(eq=False)
class Client(End):
    started: bool = False
    waiting: deque[tuple[bytes, bytes]] = attrs.field(factory=deque)
    server: "Server | None" = None
    turns: bytes = b""  # those not answered, by the kinds of their ends


@attrs.define(eq=False)
class Server(End):
    client: Client | None = None


class OwnPooler:
    """Hands its servers on between transactions: the one that has rested longest is the next, or the shortest.

    One thread serves all. It knows as much of the protocol as that takes, and no encryption, passwords or cancelling.
    """

    def __init__(self, url: str, *, size: int, round_robin: bool) -> None:
        self.url_of_servers, self._round_robin = url, round_robin
        self._drivers = [psycopg.connect(url, autocommit=True, sslmode="disable") for _ in range(size)]
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self._bell, self._ears = socket.socketpair()
        self._selector = DefaultSelector()
        self._clients: set[Client] = set()
        self._queue: deque[Client] = deque()
        self._idle = deque(Server(socket.socket(fileno=os.dup(driver.fileno()))) for driver in self._drivers)
        for server in self._idle:
            server.socket.setblocking(True)
            self._selector.register(server.socket, EVENT_READ, server)
        self._selector.register(self._door, EVENT_READ, None)
        self._selector.register(self._ears, EVENT_READ, None)
        self._servers = list(self._idle)
        self._thread = threading.Thread(target=self._serve, name="pooler")
        self._thread.start()

    def close(self) -> None:
        self._bell.send(b"!")
        self._thread.join(LIMIT)
        for one in (*self._clients, *self._servers):
            one.socket.close()
        for driver in self._drivers:
            driver.close()
        for end in (self._door, self._bell, self._ears):
            end.close()
        self._selector.close()

    def _serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._ears:
                    return
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, Client):
                    self._hear(key.data)
                else:
                    self._answer(key.data)

    def _accept(self) -> None:
        client = Client(self._door.accept()[0])
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else each answer may wait for 40 ms
        self._clients.add(client)
        self._selector.register(client.socket, EVENT_READ, client)

    def _hear(self, client: Client) -> None:
        frames = client.frames()
        if frames is None or any(kind == TERMINATE for kind, _ in frames):
            self._leave(client)
            return
        for kind, data in frames:
            if kind == STARTUP:
                client.socket.sendall(self._welcome())
            else:
                client.waiting.append((kind, data))
        self._go_on(client)

    def _welcome(self) -> bytes:
        status: Mapping[str, Any] = {name: self._drivers[0].info.parameter_status(name) for name in PARAMETERS}
        told = [frame(b"S", f"{name}\0{value}\0".encode()) for name, value in status.items()]
        key = frame(b"K", struct.pack("!iI", -random.randrange(1, 2**31), 0))  # its own, as PgBouncer's are
        return frame(b"R", struct.pack("!I", 0)) + b"".join(told) + key + frame(READY, IDLE)

    def _hand_out(self) -> None:
        while self._queue and self._idle:
            client, server = self._queue.popleft(), self._idle.popleft()
            client.server, server.client = server, client
            self._pass_on(client)

    def _go_on(self, client: Client) -> None:
        if client.waiting and client.server is None and client not in self._queue:
            self._queue.append(client)
        self._pass_on(client)
        self._hand_out()

    def _pass_on(self, client: Client) -> None:
        """Up to a Sync: what follows comes after its answer here, as it may on a slow line."""
        while client.server is not None and client.waiting and not client.turns.endswith(SYNC):
            kind, data = client.waiting.popleft()
            client.turns += kind if kind in ENDS_TURN else b""
            client.server.socket.sendall(data)

    def _answer(self, server: Server) -> None:
        client = server.client
        for kind, data in server.frames() or ():
            if client is not None:
                client.socket.sendall(data)
                if kind == COPY_IN:  # the server passes over this Sync, and libpq sends another one after the copy
                    client.turns = client.turns.removesuffix(SYNC)
                elif kind == READY:
                    client.turns = client.turns[1:]
                    if data[-1:] == IDLE and not client.turns:
                        self._release(client)
        if client is not None:
            self._go_on(client)

    def _release(self, client: Client) -> None:
        server = client.server
        assert server is not None
        client.server = server.client = None
        (self._idle.append if self._round_robin else self._idle.appendleft)(server)

    def _leave(self, client: Client) -> None:
        """Its open transaction keeps the server, which nobody gets any more."""
        self._selector.unregister(client.socket)
        self._clients.discard(client)
        client.socket.close()
        if client in self._queue:
            self._queue.remove(client)
        if client.server is not None:
            self._selector.unregister(client.server.socket)


@contextmanager
def own_pooler(url: str, *, size: int = 3, round_robin: bool = False) -> Iterator[str]:
    """A pooler in transaction mode: a URL by way of it."""
    made = OwnPooler(url, size=size, round_robin=round_robin)
    try:
        yield url_of(url, host="127.0.0.1", port=str(made.port), sslmode="disable", gssencmode="disable")
    finally:
        made.close()
