"""A publisher is found by the name of its URL's scheme; a broker opens each once, in each process, and closes it."""

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from sqlqueue import (
    Broker,
    BrokerClosed,
    DeclarationError,
    OutgoingMessage,
    Publisher,
    PublisherNotFound,
    PublishError,
    plugins,
)
from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import manager, publisher_for
from sqlqueue.relay import MemoryPublisher

LIMIT = 60.0


class Loft:
    """A plugin's publisher."""

    name = "pigeon://loft"

    def publish(self, messages: Sequence[OutgoingMessage]) -> None: ...

    def close(self) -> None: ...


class Pigeons:
    @hookimpl
    def sqlqueue_publisher(self, url: str) -> Publisher | None:
        return Loft() if url.startswith("pigeon:") else None


class Lazy:
    """A plugin that imports its client library where it needs it."""

    @hookimpl
    def sqlqueue_publisher(self, url: str) -> Publisher | None:
        if url.startswith("lazy:"):
            raise ImportError("No module named 'lazy_client'")
        return None


@pytest.fixture
def registered() -> Iterator[None]:
    added = [Pigeons(), Lazy()]
    for plugin in added:
        manager().register(plugin)
    yield
    for plugin in added:
        manager().unregister(plugin)


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two more entry points: one whose module cannot be imported, and one that imports later."""
    real = importlib.metadata.entry_points
    more = [
        EntryPoint("missing", "sqlqueue_of_nobody.targets.missing_client", plugins.PUBLISHERS),
        EntryPoint("lazy", "sqlqueue.relay.targets.memory", plugins.PUBLISHERS),
    ]

    def entry_points(**wanted: Any) -> EntryPoints:
        return EntryPoints([*real(**wanted), *EntryPoints(more).select(**wanted)])

    monkeypatch.setattr("sqlqueue.plugins.entry_points", entry_points)


def refusal(url: Any) -> str:
    with pytest.raises(PublisherNotFound) as caught:
        publisher_for(url)
    return str(caught.value)


def test_a_url_is_served_by_its_scheme() -> None:
    assert publisher_for("memory://here") is MemoryPublisher.named("here")


def test_an_unknown_scheme_is_refused_with_those_that_there_are() -> None:
    said = refusal("smoke://hill:secret@fire")
    assert said.startswith("nothing installed publishes to the URL scheme 'smoke'; installed are: ")
    assert "memory://" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("given", "shown"), [("orders", "'orders'"), ("", "''"), ("a:secret@b", "the text"), (None, "None")]
)
def test_what_is_no_url_is_refused_with_what_one_begins_with(given: Any, shown: str) -> None:
    said = refusal(given)
    assert said.startswith(f"{shown} is no publisher's URL; it begins with one of: ")
    assert "memory://" in said
    assert "secret" not in said


@pytest.mark.usefixtures("entries", "registered")
@pytest.mark.parametrize(("scheme", "extra"), [("missing", "missing_client"), ("lazy", "memory")])
def test_a_missing_client_library_is_told_with_the_extra_that_brings_it(scheme: str, extra: str) -> None:
    said = refusal(f"{scheme}://host")
    assert f"; {scheme}: No module named " in said
    assert said.endswith(f"(pip install 'sqlqueue[{extra}]')")


@pytest.mark.usefixtures("registered")
def test_a_plugin_that_is_registered_by_hand_publishes() -> None:
    assert isinstance(publisher_for("pigeon://loft"), Loft)


def test_a_broker_opens_a_publisher_once_and_closes_it() -> None:
    with Broker("sqlite://") as broker:
        bus = broker.publisher("memory://once")
        assert broker.publisher("memory://once") is bus
    with pytest.raises(PublishError, match="memory://once is closed"):
        bus.publish([])
    with pytest.raises(BrokerClosed):
        broker.publisher("memory://once")


def test_a_url_that_says_something_wrong_is_a_declaration_error() -> None:
    with pytest.raises(DeclarationError, match="names no publisher in memory; give memory://name"):
        publisher_for("memory://")


def test_nothing_of_the_relay_is_imported_before_it_is_asked_for() -> None:
    program = "import sys, sqlqueue; print([name for name in sys.modules if name.startswith('sqlqueue.relay')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert done.stdout.strip() == "[]"
