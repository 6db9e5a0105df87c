"""The brokers of this machine, each by its name, with a destination of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from tests.relay.target import Target, needs


@contextmanager
def serving(broker: str) -> Iterator[Target]:
    """A broker's target; its client is not imported before. The test is skipped where it is not here."""
    needs(broker)
    with import_module(f"{__name__}.{broker}").serving() as made:
        yield made
