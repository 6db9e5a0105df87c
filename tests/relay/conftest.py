"""Publishers and broken ways to a broker. Without a broker's client the tests of its publisher are left out; the run
says so at its end."""

import socket
from collections.abc import Iterator

import pytest

from sqlqueue.publisher import Publisher
from tests.relay.target import Make, Target
from tests.support.availability import BROKERS, installed
from tests.support.tcp_proxy import TCPProxy, tcp_proxy

collect_ignore = [f"test_{name}.py" for name, (module, _) in BROKERS.items() if not installed(module)]
if not installed("trustme"):
    collect_ignore += ["test_tls.py", "test_tls_files.py"]


@pytest.fixture
def make(target: Target) -> Iterator[Make]:
    """Makes publishers, by the settings of `Target.url`; they are closed at the end."""
    made: list[Publisher] = []

    def one(**settings: object) -> Publisher:
        made.append(target.make(target.url(**settings)))  # type: ignore[arg-type]
        return made[-1]

    yield one
    for publisher in made:
        publisher.close()


@pytest.fixture
def cuts(target: Target) -> Iterator[TCPProxy]:
    """A proxy in front of the broker."""
    with tcp_proxy("127.0.0.1", target.port) as proxy:
        yield proxy


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Connections are taken there, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
