"""What a type checker tells users: nothing where they are right, the place and the reason where they are not."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support.database import Database
from tests.typing import user_program

RIGHT = Path(user_program.__file__)

# A comment says which error mypy must report for its line, and nothing else may be reported.
WRONG = """
from datetime import datetime

import attrs

from sqlqueue import Broker, Consumer, column, retry, table
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue


@table("invoice_jobs")
class InvoiceJob:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()
    shop: str


InvoiceJob(payload=b"{}", shop="north")
InvoiceJob(payload=b"{}", shp="north")  # E: Unexpected keyword argument "shp" for "InvoiceJob"
InvoiceJob(payload=b"{}")  # E: Missing named argument "shop" for "InvoiceJob"
InvoiceJob(payload="{}", shop="north")  # E: Argument "payload" to "InvoiceJob" has incompatible type "str"
InvoiceJob(id=1, payload=b"{}", shop="north")  # E: Unexpected keyword argument "id" for "InvoiceJob"
InvoiceJob(payload=b"{}", shop="north").pyload  # E: "InvoiceJob" has no attribute "pyload"

broker = Broker("sqlite://", pool=4)  # E: Unexpected keyword argument "pool" for "Broker"
queue = broker.queue("invoice_jobs")  # E: Argument 1 to "queue" of "Broker" has incompatible type "str"
queue.enqueue(1, at="tomorrow")  # E: Argument "at" to "enqueue" of "Queue" has incompatible type "str"
queue.enqueue(1, on_conflict="skip")  # E: Argument "on_conflict" to "enqueue" of "Queue" has incompatible type
queue.enqueue(1, headers=["a"])  # E: Argument "headers" to "enqueue" of "Queue" has incompatible type "list[str]"
queue.handler(worker=4)  # E: Unexpected keyword argument "worker" for overloaded function "handler" of "Queue"
Consumer(broker, drain_timeout="5 s")  # E: Argument "drain_timeout" to "Consumer" has incompatible type "str"
retry.Exponential(frist=1)  # E: Unexpected keyword argument "frist" for "Exponential"


@queue.handler(workers=2)
def render(message: int) -> None: ...


render("A-17")  # E: Argument 1 to "render" has incompatible type "str"; expected "int"


@attrs.frozen
class Send(Step):
    order: str

    def run(self, context: StepContext) -> Next:
        context.connectoin  # E: "StepContext" has no attribute "connectoin"; maybe "connection"?
        return Next.now("Send")  # E: Argument 1 to "now" of "Next" has incompatible type "str"; expected "Step"


Send(17)  # E: Argument 1 to "Send" has incompatible type "int"; expected "str"
tasks = TaskQueue(broker, [Send])  # E: List item 0 has incompatible type "type[Send]"; expected "Task"
tasks.enqueue("Send")  # E: Argument 1 to "enqueue" of "TaskQueue" has incompatible type "str"; expected "Step"
Task("Shipping", [int])  # E: List item 0 has incompatible type "type[int]"; expected "type[Step]"
"""


def expected(source: str) -> dict[int, str]:
    """The error of each line that has one."""
    found = (line.partition("# E: ") for line in source.splitlines())
    return {number: text for number, (_, mark, text) in enumerate(found, 1) if mark}


def test_a_right_program_passes_and_each_mistake_is_told_where_it_is(tmp_path: Path) -> None:
    """A misspelt field of a row is found before the program runs, although rows are made by a decorator."""
    wrong = tmp_path / "wrong.py"
    wrong.write_text(WRONG)
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--no-pretty", "--hide-error-codes"]
    # A process of its own: mypy's raises the recursion limit beyond what other tests' stacks bear.
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, f"--cache-dir={tmp_path / 'cache'}", str(RIGHT), str(wrong)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    errors = re.findall(r"^(.*):(\d+): error: (.*)$", checked.stdout, re.MULTILINE)
    told = {int(line): text for file, line, text in errors if Path(file).name == "wrong.py"}

    assert checked.stderr == ""
    assert [error for error in errors if Path(error[0]).name != "wrong.py"] == []
    assert {line: text[: len(expected(WRONG).get(line, text))] for line, text in told.items()} == expected(WRONG)


def test_the_right_program_runs(database: Database) -> None:
    user_program.main(database.url)
