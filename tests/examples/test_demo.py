"""The demo is a program that people run first: here it runs as they run it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support.database import Database

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"
LIMIT = 60.0  # seconds

PICKED_UP = re.compile(r"A-21 from the other program was picked up in (\d+\.\d+) s, with a poll interval of 60 s")


def command(database: Database) -> list[str]:
    """The demo on a test's server; on SQLite it makes a file of its own."""
    return [sys.executable, str(DEMO), *([] if database.kind == "sqlite" else ["--url", database.url])]


def test_two_processes_render_each_invoice_of_another_program_once_and_a_late_one_promptly(database: Database) -> None:
    """Issue 2, "What it must show": the tally, and the pick-up with the poll interval at 60 s."""
    ended = subprocess.run(
        command(database), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT
    )
    lines = ended.stdout.splitlines()
    rendered = re.findall(r"^worker \d+ rendering (\S+)$", ended.stdout, re.MULTILINE)
    consumers = re.findall(r"^worker (\d+) consuming invoice_jobs from ", ended.stdout, re.MULTILINE)
    picked_up = PICKED_UP.search(ended.stdout)

    assert ended.returncode == 0, ended.stdout
    assert sorted(rendered) == sorted(f"A-{number}" for number in range(1, 22))
    assert len(set(consumers)) == 2
    assert "each exactly once" in lines
    assert picked_up is not None, ended.stdout
    assert float(picked_up[1]) < 0.25


def test_ctrl_c_ends_the_demo_with_all_its_processes_and_removes_its_database(database: Database) -> None:
    """Ctrl-C goes to every process of the terminal's foreground group, here of a group of its own."""
    demo = subprocess.Popen(
        command(database), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    said = []
    assert demo.stdout is not None
    for line in demo.stdout:
        said.append(line)
        if " rendering " in line:
            break
    os.killpg(demo.pid, signal.SIGINT)
    rest, _ = demo.communicate(timeout=LIMIT)
    output = "".join(said) + rest
    workers = [int(pid) for pid in re.findall(r"^worker (\d+) consuming", output, re.MULTILINE)]

    assert demo.returncode == 130, output
    assert len(workers) == 2, output
    assert [pid for pid in workers if is_running(pid)] == []
    assert left_behind(database, output) == []


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def left_behind(database: Database, output: str) -> Sequence[object]:
    """What is left of the demo's own file or schema."""
    if database.kind == "sqlite":
        (path,) = set(re.findall(r"consuming invoice_jobs from (\S+)", output))
        return list(Path(path).parent.parent.glob(Path(path).parent.name))
    return database.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sqlqueue_demo_%'")
