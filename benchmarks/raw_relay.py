"""The relay that one would write by hand: lock some rows, publish them, delete them, commit, again; one thread."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from benchmarks.raw import Loop
from sqlqueue import OutgoingMessage
from tests.support.database import Database


@attrs.define
class Bus:
    """The least that a target in memory can do."""

    name: str = "memory"
    messages: list[OutgoingMessage] = attrs.field(factory=list)

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        self.messages.extend(messages)

    def close(self) -> None:
        self.messages.clear()


@attrs.define
class _ByHand:
    """`claim`, `delete`: what is executed between `begin` and COMMIT; `bound`: the ids as the driver takes them."""

    bus: Bus
    connection: Any
    begin: str
    claim: str
    delete: str
    bound: Callable[[list[int]], Any] = list

    def drain(self) -> int:
        done, execute = 0, self.connection.execute
        self.bus.messages.clear()
        while True:
            execute(self.begin)
            rows = execute(self.claim).fetchall()
            if rows:
                self.bus.publish([OutgoingMessage(payload=bytes(row[1]), id=str(row[0])) for row in rows])
                execute(self.delete, (self.bound([row[0] for row in rows]),))
            execute("COMMIT")
            if not rows:
                return done
            done += len(rows)

    def close(self) -> None:
        self.connection.close()


def relay_loop(database: Database, bus: Bus, batch: int) -> Loop:
    claim = f"SELECT id, payload FROM bench_jobs ORDER BY id LIMIT {batch}"
    if database.kind == "sqlite":
        from benchmarks.raw_sqlite import connected as file

        delete = "DELETE FROM bench_jobs WHERE id IN (SELECT value FROM json_each(?))"
        return _ByHand(bus, file(database.name), "BEGIN IMMEDIATE", claim, delete, json.dumps)
    from benchmarks.raw_postgres import connected as server

    delete = "DELETE FROM bench_jobs WHERE id = ANY(%s)"
    return _ByHand(bus, server(database.url), "BEGIN", f"{claim} FOR UPDATE SKIP LOCKED", delete)
