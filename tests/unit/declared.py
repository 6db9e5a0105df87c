"""Tables and handlers that the tests of declarations share."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import attrs
import pytest

from sqlqueue import Broker, DeclarationError, TableSpec, column, table
from sqlqueue.handler import Handler
from sqlqueue.spec import spec_of


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@table("plain")
class Plain:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()


BY_HAND = TableSpec(name="plain", columns=attrs.evolve(spec_of(Plain), row_class=None).columns)


@attrs.frozen
class Invoice:
    number: int


def one(message: Invoice) -> None: ...


def made(function: Any, declared: Any = Job, **settings: Any) -> Handler:
    with Broker("sqlite://") as broker:
        queue = broker.queue(declared)
        queue.handler(**settings)(function)
        assert queue.registered is not None
        return queue.registered


def refusal(act: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        act(*args, **kwargs)
    return str(caught.value)
