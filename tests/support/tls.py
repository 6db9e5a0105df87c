"""Certificates for a test, and a way to a server by TLS."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import trustme

HOST = "127.0.0.1"
LIMIT = 10.0  # seconds


@attrs.frozen
class Certificate:
    """Files in PEM."""

    certfile: str
    keyfile: str


@attrs.frozen
class Authority:
    """Issues certificates, for a host or a client alike."""

    folder: Path
    _ca: trustme.CA = attrs.field(factory=trustme.CA)

    @property
    def cafile(self) -> str:
        path = self.folder / "authority.pem"
        self._ca.cert_pem.write_to_path(path)
        return str(path)

    def issue(self, name: str = HOST) -> Certificate:
        issued = self._ca.issue_cert(name)
        certfile, keyfile = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(certfile)
        issued.private_key_pem.write_to_path(keyfile)
        return Certificate(str(certfile), str(keyfile))


def server_context(certificate: Certificate, *, asks_by: str | None = None) -> ssl.SSLContext:
    """`asks_by`: who does not have a certificate of these authorities is sent away."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=asks_by)
    context.load_cert_chain(certificate.certfile, certificate.keyfile)
    if asks_by is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextmanager
def tls_proxy(port: int, context: ssl.SSLContext) -> Iterator[int]:
    """The port of a proxy that speaks TLS with whoever comes, and in the clear with the server on `port`."""
    loop = asyncio.new_event_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection(HOST, port)
        try:
            await asyncio.gather(_pump(reader, to_server), _pump(from_server, writer), return_exceptions=True)
        finally:
            for end in (writer, to_server):
                end.transport.abort()

    async def stop() -> None:
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, HOST, 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever, name="tls proxy")
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(LIMIT)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT)
        loop.close()
