"""A TCP proxy in front of a server, which a test tells to refuse, cut, hold and swallow connections."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from selectors import EVENT_READ, DefaultSelector

LIMIT = 10.0  # seconds

#: Closing a socket with this set sends a reset, as a server that died does.
RESET = struct.pack("ii", 1, 0)


def _reset(end: socket.socket) -> None:
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    end.close()


class TCPProxy:
    """One thread serves all connections. Every command is in force when it returns."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        """`connect`: a connection to the server."""
        self._connect = connect
        self._changed = threading.Condition()
        self._holding = self._swallowing = self._closed = False
        self._door = self._bind(0)
        self.port: int = self._door.getsockname()[1]
        self._selector = DefaultSelector()
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._servers: set[socket.socket] = set()
        self._deaf: set[socket.socket] = set()
        self._held: list[socket.socket] = []
        self._let_in = 0
        self.accepted = 0
        self._thread = threading.Thread(target=self._serve, name="proxy")

    # -- commands ---------------------------------------------------------------------------------------------

    def forward(self) -> None:
        """Serve whoever connects from now on. Connections that were held are cut, and all that were swallowed."""
        with self._changed:
            if self._swallowing:
                self._cut()
            self._release()
            self._holding = self._swallowing = False
            self._open()

    def refuse(self) -> None:
        """Cut all connections and let nobody in."""
        with self._changed:
            self._cut()
            self._shut()

    def cut(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Cut all connections; new ones are served as before, once `meanwhile` has been called."""
        with self._changed:
            self._cut()
            meanwhile()

    def hold(self, *, after: int = 0) -> None:
        """Leave new connections without an answer, when so many more were let in; those there are go on."""
        with self._changed:
            self._holding, self._let_in = True, after

    def swallow(self) -> None:
        """Let everything that is sent vanish, both ways, while the connections stay."""
        with self._changed:
            self._holding = self._swallowing = True
            self._let_in = 0

    def swallow_answers(self) -> None:
        """Let everything that the server says vanish, until the connections are cut."""
        with self._changed:
            self._deaf.update(self._servers)

    def wait_for_connection(self, count: int) -> None:
        """Wait until so many connections have come in since the start."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.accepted >= count, LIMIT), f"{self.accepted} of {count} came"

    # -- the thread -------------------------------------------------------------------------------------------

    def _bind(self, port: int) -> socket.socket:
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind(("127.0.0.1", port))  # the port is ours, and refuses until somebody listens there
        return door

    def _open(self) -> None:
        if self._door not in self._selector.get_map():
            self._door.listen()
            self._selector.register(self._door, EVENT_READ)

    def _shut(self) -> None:
        if self._door in self._selector.get_map():
            self._selector.unregister(self._door)
            self._door.close()
            self._door = self._bind(self.port)

    def _cut(self) -> None:
        for end in list(self._pairs):
            self._selector.unregister(end)
            _reset(end)
        self._pairs.clear()
        self._servers.clear()
        self._deaf.clear()
        self._release()

    def _release(self) -> None:
        for end in self._held:
            _reset(end)
        self._held.clear()

    def _serve(self) -> None:
        while not self._closed:
            for key, _ in self._selector.select(0.02):  # the time that a command waits for a quiet thread
                with self._changed:
                    end = key.fileobj
                    assert isinstance(end, socket.socket)
                    if end is self._door:
                        self._accept()
                    elif end in self._pairs:
                        self._pass_on(end)

    def _accept(self) -> None:
        client, _ = self._door.accept()
        if self._holding and not self._let_in:
            self._held.append(client)
        else:
            self._let_in = max(0, self._let_in - 1)
            server = self._connect()
            self._servers.add(server)
            for end in (client, server):
                if end.family == socket.AF_INET:  # else what we pass on may wait for 40 ms
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for one, other in ((client, server), (server, client)):
                self._pairs[one] = other
                self._selector.register(one, EVENT_READ)
        self.accepted += 1
        self._changed.notify_all()

    def _pass_on(self, end: socket.socket) -> None:
        other = self._pairs[end]
        try:
            data = end.recv(65536)
            if data and (self._swallowing or end in self._deaf):
                return
            if data:
                other.sendall(data)
                return
        except OSError:
            pass  # one of them has gone
        for gone in (end, other):
            self._selector.unregister(gone)
            del self._pairs[gone]
            self._servers.discard(gone)
            gone.close()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed = True
        self._thread.join(LIMIT)
        self._cut()
        self._selector.close()
        self._door.close()


@contextmanager
def running(proxy: TCPProxy, *, refusing: bool = False) -> Iterator[None]:
    """The proxy at work; `refusing`: nobody gets in before `forward()`."""
    if not refusing:
        proxy.forward()
    proxy.start()
    try:
        yield
    finally:
        proxy.close()


@contextmanager
def tcp_proxy(host: str, port: int) -> Iterator[TCPProxy]:
    """A proxy in front of the server at an address."""
    made = TCPProxy(partial(socket.create_connection, (host, port), LIMIT))
    with running(made):
        yield made
