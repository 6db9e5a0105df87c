"""The pages are true: their programs run, their links lead somewhere, and every public name is told of."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import sqlqueue
import sqlqueue.steps
from sqlqueue import Broker, Consumer
from sqlqueue.plugins import manager
from tests.docs.pages import PAGES, ROOT, anchors, blocks, links
from tests.support.availability import installed
from tests.support.database import sqlite_file

LIMIT = 30.0  # seconds

ALL_PAGES = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty directory, where a consumer that would run for ever ends when nothing is left to do. Where Django is
    installed, its site there serves shop.db."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Consumer, "run_forever", lambda consumer: consumer.run_until_idle(LIMIT))
    before = manager().get_plugins()
    with _django_site(tmp_path / "shop.db"):
        yield
    for plugin in manager().get_plugins() - before:
        manager().unregister(plugin)


@contextmanager
def _django_site(path: Path) -> Iterator[None]:
    if not installed("django"):
        yield
        return
    from tests.integrations.django_site import serving

    with serving(sqlite_file(path)):
        yield


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_programs_of_a_page_run_one_after_the_other(page: Path) -> None:
    """All blocks of a page are one program, as its reader types them in."""
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks(page, "python"):
            if block.runs:
                exec(block.compiled(), names)  # noqa: S102 - our own pages
            else:
                block.compiled()
    finally:
        _close(names)


def _close(names: dict[str, Any]) -> None:
    """The brokers of a page, and SQLAlchemy's engines, which a service never closes."""
    for value in names.values():
        if isinstance(value, Broker):
            value.close()
        elif hasattr(value, "dispose"):
            value.dispose()
    if "db" in names:
        with names["app"].app_context():
            names["db"].engine.dispose()


@pytest.mark.usefixtures("elsewhere")
def test_the_recommended_ddl_of_the_tables_page_is_what_the_broker_prints() -> None:
    page = ROOT / "docs" / "tables.md"
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(next(blocks(page, "python")).compiled(), names)  # noqa: S102 - our own page
    with names["broker"] as broker:
        assert broker.ddl(names["Mail"]) == next(blocks(page, "sql", "ddl", "sqlite")).text


def test_the_quick_start_is_a_whole_program(tmp_path: Path) -> None:
    """SPEC 1: as it stands, in a file of its own; it renders the invoice, and SIGTERM ends it with code 0."""
    program = tmp_path / "quick_start.py"
    program.write_text(next(blocks(ROOT / "README.md", "python")).text)
    running = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "rendering A-17\n"
        running.send_signal(signal.SIGTERM)
        assert running.wait(LIMIT) == 0
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_every_link_into_the_tree_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_public_name_is_told_of() -> None:
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    names = [*sqlqueue.__all__, *sqlqueue.steps.__all__]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_every_page_is_in_the_reading_order() -> None:
    index = ROOT / "docs" / "index.md"
    assert {"index.md", *(link.partition("#")[0] for link in links(index))} >= {page.name for page in PAGES[1:]}
