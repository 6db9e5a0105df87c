"""The raw loop of tasks: one thread with the statements that sqlqueue sends, so many rows in every turn.

It claims, decodes, makes the next step's JSON, and settles with the next claim in one transaction: on PostgreSQL in one
statement, as the dialect fuses them.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs

from benchmarks.raw import LEASE, Loop, text
from sqlqueue.delivery import reader
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.sql import Statement
from sqlqueue.steps import TaskQueue
from sqlqueue.steps.shape import RESUMED, Stepping
from sqlqueue.steps.table import noted_in
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from tests.support.database import Database

NEXT = {"First": "Second", "Second": "Third"}

#: A claimed row: its id, and what it goes on with, None where it is done.
Done = tuple[Any, str | None]


def loop(database: Database, tasks: TaskQueue, batch: int) -> Loop:
    broker, spec = tasks.broker, tasks.queue.spec
    sql = QueueSQL(broker.dialect, spec, grouped=False)
    columns = reader(broker.dialect, spec, broker.codec, bytes).columns
    shape = Stepping(updated_at=noted_in(spec)).shape(sql, lambda expression: expression)
    lease = Lease(QueuePlan(sql=sql, columns=columns, lease=LEASE, most=batch, cap=shape.cap, shape=shape))
    statements = {statement.name: statement for statement in lease.statements()}
    if database.kind == "sqlite":
        return SQLiteSteps(database.name, statements, batch)
    return PostgresSteps(database.url, statements, batch)


def run(stored: str) -> str | None:
    """What a step's JSON leads to."""
    ((task, inner),) = json.loads(stored).items()
    ((step, fields),) = inner.items()
    then = NEXT.get(step)
    return None if then is None else json.dumps({task: {then: fields}}, separators=(",", ":"))


class SQLiteSteps:
    def __init__(self, path: str, statements: Mapping[str, Statement], batch: int) -> None:
        from benchmarks.raw_sqlite import connected
        from sqlqueue_sqlite.prepared import prepare

        self._claim = prepare(statements["claim by lease"])
        self._advance, self._finish = prepare(statements["advance"]), prepare(statements["acknowledge"])
        self._batch = batch
        self._connection = connected(path)

    def drain(self) -> int:
        done, token = 0, ""
        ran: list[Done] = []
        while True:
            rows, token = self._turn(ran, token)
            if not rows:
                return done
            ran = [(row[0], run(row[1])) for row in rows]
            done += len(rows)

    def _turn(self, ran: Sequence[Done], token: str) -> tuple[list[tuple[Any, ...]], str]:
        moment = datetime.now(timezone.utc)
        now, expires = text(moment), text(moment + timedelta(seconds=LEASE))
        names = ("now_lease", "now_retry_after", "now_updated_at", "due")
        values = {**dict.fromkeys(names, now), "limit": self._batch, "cap": RESUMED, "expires": expires, "token": token}
        values["left_alone"] = "[]"
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        settled = 0
        for id, stored in ran:
            one = self._finish if stored is None else self._advance
            values["id"], values["stored"] = id, stored
            settled += len(execute(one.text, tuple([values[name] for name in one.names])).fetchall())
        assert settled == len(ran)
        rows = execute(self._claim.text, tuple([values[name] for name in self._claim.names])).fetchall()
        execute("COMMIT")
        return rows, expires

    def close(self) -> None:
        self._connection.close()


class PostgresSteps:
    """`_turns`: the fused statement of a turn that advances tasks, finishes some, or does both, and claims."""

    def __init__(self, url: str, statements: Mapping[str, Statement], batch: int) -> None:
        import psycopg

        from benchmarks.raw_postgres import connected

        advance, finish = statements["advance"], statements["acknowledge"]
        onward = statements["claim by lease, onward"]
        self._first = _Turn.of(statements["claim by lease"])
        self._turns = {
            (True, False): _Turn.of(advance, onward),
            (False, True): _Turn.of(finish, onward),
            (True, True): _Turn.of(advance, finish, onward),
        }
        self._batch = batch
        self._connection = connected(url)
        self._cursor = psycopg.RawCursor(self._connection)

    def drain(self) -> int:
        done, expires = 0, datetime.now(timezone.utc)
        claimed, expires = self._turn(self._first, {}, expires, [], [])
        while claimed:
            ran = [(row[0], run(row[1])) for row in claimed]
            advanced = [one for one in ran if one[1] is not None]
            finished = [id for id, stored in ran if stored is None]
            turn = self._turns[bool(advanced), bool(finished)]
            first = min((row[3], row[0]) for row in claimed)
            values = {"from_retry_after": first[0], "from_id": first[1]}
            claimed, expires = self._turn(turn, values, expires, advanced, finished)
            done += len(ran)
        return done

    def _turn(
        self,
        turn: "_Turn",
        values: dict[str, Any],
        token: datetime,
        advanced: Sequence[Done],
        finished: Sequence[Any],
    ) -> tuple[list[tuple[Any, ...]], datetime]:
        now = datetime.now(timezone.utc)
        expires = now + timedelta(seconds=LEASE)
        names = ("now_lease", "now_retry_after", "now_updated_at")
        values = {**values, **dict.fromkeys(names, now), "limit": self._batch, "cap": RESUMED, "expires": expires}
        values["left_alone"] = []
        bound: list[Any] = []
        for statement in turn.statements:
            ids = [id for id, _ in advanced] if statement.name == "advance" else finished
            given = {"id": ids, "token": [token] * len(ids), "due": [now] * len(ids)}
            given["stored"] = [stored for _, stored in advanced]
            bound += statement.bind({**values, **given})
        rows = self._cursor.execute(turn.text, tuple(bound), binary=True).fetchall()
        claimed = [row[1:5] for row in rows if row[0] == len(turn.statements) - 1]
        assert len([row for row in rows if 0 <= row[0] < len(turn.statements) - 1]) == len(advanced) + len(finished)
        return claimed, expires

    def close(self) -> None:
        self._connection.close()


@attrs.frozen
class _Turn:
    statements: Sequence[Statement]
    text: bytes

    @classmethod
    def of(cls, *statements: Statement) -> "_Turn":
        from sqlqueue_postgres.fuse import fuse

        fused = fuse(statements, len(statements) > 1)
        assert fused is not None
        return cls(statements, fused.text)
