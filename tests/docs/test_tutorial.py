"""The tutorial of docs/tasks.md, typed in as its reader does."""

import re
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.terminals import Running, Terminal, settled
from tests.support.database import Database

PAGE = ROOT / "docs" / "tasks.md"
PROGRAM = "examples/tutorial.py"


def story() -> Sequence[Block]:
    """Commands and what they print, in order."""
    return [block for block in blocks(PAGE) if "tutorial" in block.info and block.info[0] != "python"]


@attrs.define
class Reader:
    """Goes through the story with two terminals; what was printed last in the first is kept in `said`."""

    first: Terminal
    database: Database
    until_the_end: ExitStack
    second: Running | None = None
    said: str = ""

    def follow(self, block: Block) -> None:
        """Do what a block shows, or see that it is so."""
        kind, where = block.info[0], block.info[2:]
        on_server = self.database.kind != "sqlite"
        if (kind, where) == ("sh", ("consumer",)):
            self.second = self.until_the_end.enter_context(self.first.running(block.text))
        elif (kind, where) == ("sh", ("psql",)):
            assert not on_server or len(self.database.execute(shlex.split(block.text)[-1])) == 1
        elif kind == "sh":
            self.said = self.first.run(block.text) if on_server or where != ("postgresql",) else ""
        elif where == ("consumer",):
            self.look_at_the_consumer(block.text.splitlines())
        else:
            assert settled(block.text) == settled(self.said), f"line {block.line}"

    def look_at_the_consumer(self, lines: Sequence[str]) -> None:
        assert self.second is not None
        for line in lines:
            if "stopping" in line and self.database.kind == "sqlite":
                self.second.interrupt()
            self.second.wait_for(line)


def test_the_tutorial_goes_as_its_page_tells(database: Database, tmp_path: Path) -> None:
    """SPEC 11: six tries, a look by SQL, the error cleared while the consumer runs, and the greeting."""
    # On a server the database is named, on SQLite it is the file that the program chooses.
    options = () if database.kind == "sqlite" else ("--url", database.url)
    first = Terminal(tmp_path, PROGRAM, options, slow="work", quick="work --retry-delay 0.01")
    with ExitStack() as until_the_end:
        reader = Reader(first, database, until_the_end)
        for block in story():
            reader.follow(block)
        assert reader.second is not None
        assert reader.second.end() == 0
    seen = reader.second.seen
    assert len([line for line in seen if re.search(r"failed in try \d of 6$", line)]) == 12
    assert [line for line in seen if "Hello" in line] == ["Hello, Ada!", "Hello, Grace!", "Hello, Edsger!"]
    assert first.run(f'python {PROGRAM} sql "SELECT * FROM pg_task"') == "rows: 0\n"


def test_the_page_shows_the_steps_of_the_program() -> None:
    (shown,) = blocks(PAGE, "python", "tutorial")
    _, decorator, steps = shown.text.partition("@attrs.frozen\n")
    assert decorator + steps in (ROOT / PROGRAM).read_text()
