"""The pages that people read: their code blocks, links and headings."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import dedent
from types import CodeType

import attrs

from tests.support.availability import BROKERS, INTEGRATIONS, installed

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

#: The words of an info string that name a module.
LIBRARIES = {*INTEGRATIONS, *(module for module, _ in BROKERS.values())}

_FENCE = re.compile(r"^ *```(.*)$")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@attrs.frozen
class Block:
    """A fenced block: the words of its info string, its text, and the line of the page on which the text begins."""

    page: Path
    info: tuple[str, ...]
    text: str
    line: int

    @property
    def needs(self) -> Sequence[str]:
        """The modules that it is about, beside sqlqueue: the further words of its info string."""
        return [word for word in self.info[1:] if word in LIBRARIES]

    @property
    def runs(self) -> bool:
        """Whether it runs on SQLite, with what is installed here."""
        here = installed(*self.needs) and not {"no-run", "postgres"} & set(self.info)
        return self.info[:1] == ("python",) and here

    def compiled(self) -> CodeType:
        """The code, whose errors name the page and its lines."""
        return compile("\n" * (self.line - 1) + self.text, str(self.page), "exec")


def blocks(page: Path, *info: str) -> Iterator[Block]:
    """The fenced blocks of a page whose info string begins with these words."""
    opened: tuple[tuple[str, ...], int] | None = None
    lines: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif opened is None:
            opened, lines = (tuple(fence[1].split()), number + 1), []
        else:
            if opened[0][: len(info)] == info:
                yield Block(page, opened[0], dedent("\n".join(lines) + "\n"), opened[1])
            opened = None


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """Where a page points to inside the tree."""
    return [link for link in _LINK.findall(prose(page)) if not re.match(r"[a-z]+:", link)]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made by those who show Markdown."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(page)))
    return {heading.replace(" ", "-") for heading in plain}
