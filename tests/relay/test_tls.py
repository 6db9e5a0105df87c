"""Publishers that speak TLS with their broker: whom they trust, and who they are."""

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import attrs
import pytest

from tests.relay.target import PASSWORD, Target, message, needs, payloads
from tests.relay.target_contract import refusal
from tests.support.tls import HOST, LIMIT, Authority, Certificate, server_context, tls_proxy

BROKERS = "tests.relay.brokers"


class Secured(Protocol):
    """A broker that speaks TLS alone."""

    @property
    def scheme(self) -> str:
        """Of its URLs."""
        ...

    def __call__(self, certificate: Certificate, *, cafile: str, asks: bool = False) -> AbstractContextManager[Target]:
        """`asks`: for a certificate of the authorities in `cafile`."""
        ...


@attrs.frozen
class BehindProxy:
    """The broker of this machine, behind a proxy that speaks TLS."""

    scheme: str
    _serving: Callable[[], AbstractContextManager[Any]]

    @contextmanager
    def __call__(self, certificate: Certificate, *, cafile: str, asks: bool = False) -> Iterator[Target]:
        context = server_context(certificate, asks_by=cafile if asks else None)
        with self._serving() as target, tls_proxy(target.port, context) as target.port:
            yield target


@attrs.frozen
class NATSWithTLS:
    """A server of the test's own: NATS begins in the clear, which no proxy for TLS can."""

    scheme = "tls"
    _nats: Any
    _folder: Path

    @contextmanager
    def __call__(self, certificate: Certificate, *, cafile: str, asks: bool = False) -> Iterator[Target]:
        options = ["--tls", "--tlscert", certificate.certfile, "--tlskey", certificate.keyfile]
        if asks:
            options += ["--tlsverify", "--tlscacert", cafile]
        ours = ssl.create_default_context(cafile=cafile)
        ours.check_hostname = False
        ours.load_cert_chain(certificate.certfile, certificate.keyfile)
        with (
            self._nats.nats_server(self._folder, *options) as port,
            self._nats.serving(port, tls=ours) as target,
        ):
            yield target


@pytest.fixture(params=["redis", "rabbitmq", "nats"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Secured:
    needs(request.param)
    broker = import_module(f"{BROKERS}.{request.param}")
    if request.param == "nats":
        return NATSWithTLS(broker, tmp_path)
    return BehindProxy({"redis": "rediss", "rabbitmq": "amqps"}[request.param], broker.serving)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def secure(secured: Secured, target: Target, **options: object) -> str:
    _, _, rest = target.url(**options).partition("://")  # type: ignore[arg-type]
    return f"{secured.scheme}://{rest}"


def test_messages_arrive_by_a_private_authority(secured: Secured, authority: Authority) -> None:
    with secured(authority.issue(), cafile=authority.cafile) as target:
        publisher = target.make(secure(secured, target, cafile=authority.cafile))
        publisher.publish([message("a", key="k"), message("b", key="k")])
        publisher.close()
        assert publisher.name.startswith(f"{secured.scheme}://{HOST}:{target.port}/")
        assert payloads(target.arrived()) == ["a", "b"]


def test_an_authority_that_the_system_does_not_know_is_not_trusted(secured: Secured, authority: Authority) -> None:
    with secured(authority.issue(), cafile=authority.cafile) as target:
        publisher = target.make(secure(secured, target))
        assert "certificate verify failed" in str(refusal(publisher, message("a")))
        publisher.close()
        assert target.arrived() == []


def test_the_certificate_of_another_host_is_not_trusted(secured: Secured, authority: Authority) -> None:
    with secured(authority.issue("elsewhere.example"), cafile=authority.cafile) as target:
        publisher = target.make(secure(secured, target, cafile=authority.cafile))
        assert f"certificate is not valid for '{HOST}'" in str(refusal(publisher, message("a")))
        publisher.close()
        assert target.arrived() == []


def test_a_broker_that_asks_for_a_certificate_gets_ours(secured: Secured, authority: Authority) -> None:
    cafile, ours = authority.cafile, authority.issue("client.example")
    with secured(authority.issue(), cafile=cafile, asks=True) as target:
        nobody = target.make(secure(secured, target, cafile=cafile))
        refusal(nobody, message("a"))
        nobody.close()
        somebody = target.make(secure(secured, target, cafile=cafile, certfile=ours.certfile, keyfile=ours.keyfile))
        somebody.publish([message("b")])
        somebody.close()
        assert payloads(target.arrived()) == ["b"]


def test_files_are_read_at_each_connection(secured: Secured, authority: Authority) -> None:
    path = Path(authority.cafile)
    with secured(authority.issue(), cafile=str(path)) as target:
        publisher = target.make(secure(secured, target, cafile=path))
        away = path.rename(path.with_suffix(".away"))
        assert "No such file" in str(refusal(publisher, message("a")))
        away.rename(path)
        publisher.publish([message("b")])
        publisher.close()
        assert payloads(target.arrived()) == ["b"]


def test_a_nats_server_that_asks_for_tls_by_itself_is_not_trusted_either(authority: Authority, tmp_path: Path) -> None:
    needs("nats")
    with NATSWithTLS(import_module(f"{BROKERS}.nats"), tmp_path)(authority.issue(), cafile=authority.cafile) as target:
        publisher = target.make(target.url())
        assert publisher.name.startswith("nats://")
        assert "certificate verify failed" in str(refusal(publisher, message("a")))
        publisher.close()
        assert target.arrived() == []


def test_a_nats_server_that_does_not_offer_tls_gets_nothing() -> None:
    needs("nats")
    from sqlqueue.relay.targets.nats import RETRIES, NATSPublisher

    def heard() -> bytes:
        client, _ = door.accept()
        with client:
            client.settimeout(LIMIT)
            client.sendall(f"INFO {json.dumps({'max_payload': 1_000_000, 'auth_required': True})}\r\n".encode())
            return b"".join(iter(lambda: client.recv(4096), b""))

    with socket.create_server((HOST, 0)) as door, ThreadPoolExecutor(1) as executor:
        hearing = [executor.submit(heard) for _ in range(1 + RETRIES)]
        publisher = NATSPublisher.from_url(f"tls://shop:{PASSWORD}@{HOST}:{door.getsockname()[1]}/orders")
        assert "the server does not offer TLS, so nothing was sent to it" in str(refusal(publisher, message("a")))
        publisher.close()
        assert [each.result(LIMIT) for each in hearing] == [b""] * len(hearing)
