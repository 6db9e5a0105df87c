"""A greeter that can be mended while it runs: a task of two steps, whose state is a row that SQL can read and write.

    python examples/tutorial.py create                  # the table, in the file tutorial.db
    python examples/tutorial.py enqueue name.txt        # a task that greets whoever is named in that file
    python examples/tutorial.py work                    # the consumer, until Ctrl-C
    python examples/tutorial.py sql "SELECT …"          # any statement, while the consumer runs or not
    python examples/tutorial.py resume                  # parked tasks go on

With `--url postgresql://localhost/tutorial` in front of the command it all happens in that database. docs/tasks.md
tells the story.
"""

import argparse
import logging
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import attrs

from sqlqueue import Broker, Consumer
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue


@attrs.frozen
class ReadName(Step):
    """Find out whom to greet."""

    retry_limit: ClassVar[int] = 5
    retry_delay: ClassVar[timedelta] = timedelta(seconds=1)

    filename: str

    def run(self, context: StepContext) -> Next:
        name = Path(self.filename).read_text().strip()
        return Next.now(SayHello(name))


@attrs.frozen
class SayHello(Step):
    """Greet, and be done."""

    name: str

    def run(self, context: StepContext) -> Next:
        print(f"Hello, {self.name}!", flush=True)
        return Next.done()


class Brief(logging.Formatter):
    """Only the last line of a traceback; a service would log all of it."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's own name
        return f"  {ei[0].__name__}: {ei[1]}"


def set_up_log() -> None:
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(Brief("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def run_sql(url: str, statement: str) -> None:
    """Run it as any other program would, which knows nothing of sqlqueue, and print what it returns."""
    with closing(connect(url)) as connection:
        cursor = connection.execute(statement)
        if cursor.description is None:
            print(f"rows changed: {cursor.rowcount}")
            return
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
    for row in rows:
        show(names, row)
    print(f"rows: {len(rows)}")


def connect(url: str) -> Any:
    """The driver's own connection; each statement commits by itself."""
    if url.startswith("sqlite:///"):
        return sqlite3.connect(unquote(url.removeprefix("sqlite:///")), timeout=10, isolation_level=None)
    import psycopg

    return psycopg.connect(url, autocommit=True)


def show(names: Sequence[str], row: Sequence[object]) -> None:
    """A row, a line for each column."""
    width = max(map(len, names))
    for name, value in zip(names, row, strict=True):
        print(f"{name:{width}}  {value}")


def main() -> None:
    given = arguments().parse_args()
    if given.command == "sql":
        return run_sql(given.url, given.statement or sys.stdin.read())
    if given.command == "work":
        ReadName.retry_delay = timedelta(seconds=given.retry_delay)
    with Broker(given.url) as broker:
        tasks = TaskQueue(broker, [Task("Greeter", [ReadName, SayHello])])
        if given.command == "create":
            broker.create_tables()  # or your own migrations: print(tasks.ddl())
        elif given.command == "enqueue":
            print("task", tasks.enqueue(ReadName(given.filename)))
        elif given.command == "resume":
            print("tasks resumed:", tasks.resume())
        else:
            set_up_log()
            Consumer(broker).run_forever()
    return None


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Greet people by a task of two steps.")
    parser.add_argument("--url", default="sqlite:///tutorial.db", help="the database (%(default)s)")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create", help="create the table")
    enqueue = commands.add_parser("enqueue", help="begin a task")
    enqueue.add_argument("filename", help="the file that holds the name")
    work = commands.add_parser("work", help="run the consumer until Ctrl-C")
    work.add_argument("--retry-delay", type=float, default=1.0, help="seconds between two tries (%(default)s)")
    sql = commands.add_parser("sql", help="run a statement")
    sql.add_argument("statement", nargs="?", help="such as: SELECT * FROM pg_task (default: what comes on stdin)")
    commands.add_parser("resume", help="let all parked tasks go on")
    return parser


if __name__ == "__main__":
    main()
