"""NATS JetStream, on the server of this machine or another."""

import asyncio
import re
import subprocess
from collections.abc import Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from email.header import Header
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import attrs
import nats
import pytest
from nats.aio.client import Client
from nats.js.api import StorageType

from sqlqueue.publisher import Publisher
from sqlqueue.relay.targets.nats import sqlqueue_publisher
from tests.relay.target import LIMIT, Arrived, Way, unique
from tests.support.tcp_proxy import tcp_proxy

PORT = 4222

#: Questions to the server at a time.
AT_ONCE = 500


@attrs.define
class NATSTarget:
    """A stream of its own, which covers one subject and those below it."""

    loop: asyncio.AbstractEventLoop
    client: Client
    stream: str
    port: int = PORT

    @property
    def refused(self) -> str:
        return unique("nowhere")

    def url(self, *, port: int | None = None, login: str = "", own: bool = True, **options: object) -> str:
        path = f"/{self.stream}" if own else ""
        return f"nats://{login}{'@' if login else ''}127.0.0.1:{port or self.port}{path}?{urlencode(options)}"

    def make(self, url: str) -> Publisher:
        publisher = sqlqueue_publisher(url)
        assert publisher is not None
        return publisher

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def way(self) -> AbstractContextManager[Way]:
        return tcp_proxy("127.0.0.1", self.port)

    def arrived(self) -> list[Arrived]:
        return [_arrived(stored) for stored in self.run(self._all())]

    async def _all(self) -> list[Any]:
        stream = self.client.jetstream()
        last = (await stream.stream_info(self.stream)).state.last_seq
        found: list[Any] = []
        for first in range(1, last + 1, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, last + 1))
            found += await asyncio.gather(*(stream.get_msg(self.stream, number) for number in numbers))
        return found


def _arrived(stored: Any) -> Arrived:
    headers = {name: _text(value) for name, value in (stored.headers or {}).items()}
    key, id_ = headers.pop("message-key", None), headers.pop("message-id", None)
    headers.pop("Nats-Msg-Id", None)  # the stream's, not the consumer's
    return Arrived(payload=stored.data or b"", key=key, headers=headers, id=id_)


def _text(value: str | Header) -> str:
    """nats-py takes headers for those of a mail, and UTF-8 for an unknown encoding."""
    if isinstance(value, str):
        return value
    return "".join(str(part) for part, _ in value._chunks).encode("ascii", "surrogateescape").decode()  # type: ignore[attr-defined]


@contextmanager
def nats_server(folder: Path, *options: str, jetstream: bool = True) -> Iterator[int]:
    """A server of the test's own; its port."""
    with_streams = ("-js", "-sd", str(folder)) if jetstream else ()
    command = ["nats-server", "-a", "127.0.0.1", "-p", "-1", *with_streams, *options]
    try:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("nats-server is not in the path")
    assert process.stderr is not None
    try:
        said = ""
        while "Server is ready" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        found = re.search(r"client connections on 127\.0\.0\.1:(\d+)", said)
        assert found, said
        yield int(found[1])
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


@contextmanager
def serving(port: int = PORT, **settings: Any) -> Iterator[NATSTarget]:
    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(nats.connect(f"nats://127.0.0.1:{port}", **settings))
    made = NATSTarget(loop, client, unique(), port)
    subjects = [made.stream, f"{made.stream}.>"]
    limits: Any = {"storage": StorageType.MEMORY, "max_msg_size": 2_000}
    made.run(client.jetstream().add_stream(name=made.stream, subjects=subjects, **limits))
    try:
        yield made
    finally:
        made.run(client.jetstream().delete_stream(made.stream))
        made.run(client.close())
        loop.close()
