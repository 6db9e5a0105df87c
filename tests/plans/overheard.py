"""A connection that remembers the calls that a strategy makes on it."""

from collections.abc import Sequence
from typing import Any

import attrs

from sqlqueue.dialect import Connection, Row
from sqlqueue.sql import Call


@attrs.define
class Overheard:
    """Hands everything on."""

    connection: Connection
    calls: list[Call] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        self.calls += calls
        return self.connection.run(calls, durable=durable)

    def send(self, steps: Sequence[Any]) -> list[list[Row]]:
        self.calls += [step for step in steps if isinstance(step, Call)]
        session: Any = self.connection
        sent: list[list[Row]] = session.send(steps)
        return sent

    def insert_many(self, *_: Any, **__: Any) -> int:
        raise NotImplementedError
