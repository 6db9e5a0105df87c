"""docs/architecture.md names the files that are there, and the packages keep the sizes that it promises."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("sqlqueue", "sqlqueue_postgres", "sqlqueue_sqlite")
MOST_FILE_LINES = 350
MOST_FUNCTION_LINES = 40  # without its docstring

#: Words that were replaced by the terms of docs/glossary.md.
REPLACED = {
    "bell",
    "pace",
    "hands",
    "in_hand",
    "lanes",
    "horizon",
    "looks",
    "told",
    "fronts",
    "levels",
    "leaving",
    "freeing",
    "keeping",
    "choosing",
    "answers",
    "turning",
    "words",
    "together",
    "again",
}


def modules() -> Mapping[str, Path]:
    """The modules of the three packages, by dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


MODULES = modules()


def named_files() -> Sequence[str]:
    """The files that the page names in code font, but for patterns."""
    return re.findall(r"`([\w/.-]+\.(?:py|md|toml|cfg))`", PAGE.read_text(encoding="utf-8"))


def test_each_file_that_the_page_names_is_there() -> None:
    missing = [name for name in named_files() if not (ROOT / name).exists() and not (ROOT / "sqlqueue" / name).exists()]
    assert missing == []


@pytest.mark.parametrize("folder", ["", "consumer", "strategies", "steps", "relay"])
def test_the_page_names_each_file_of_the_core(folder: str) -> None:
    known = {name.removeprefix("sqlqueue/") for name in named_files()}
    files = {str(path.relative_to(ROOT / "sqlqueue")) for path in (ROOT / "sqlqueue" / folder).glob("*.py")}
    assert sorted(files - known - {f"{folder}/__init__.py".lstrip("/")}) == []


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in MODULES.items()}
    assert {name: count for name, count in lengths.items() if count > MOST_FILE_LINES} == {}


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    for name, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                yield name, node


def test_no_function_is_too_long() -> None:
    long = {}
    for module, function in functions():
        assert function.end_lineno is not None
        docstring = len((ast.get_docstring(function) or "").splitlines())
        lines = function.end_lineno - function.lineno + 1 - docstring
        if lines > MOST_FUNCTION_LINES:
            long[f"{module}.{function.name}"] = lines
    assert long == {}


def test_no_definition_has_a_replaced_word_for_its_name() -> None:
    found = set()
    for module, path in MODULES.items():
        names = [module.rpartition(".")[2]]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names.append(node.name)
        found |= {f"{module}.{name}" for name in names if name.lower().strip("_") in REPLACED}
    assert found == set()


def imported(module: str) -> set[str]:
    """The modules of ours that a module imports, those for type checking included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            inside = {f"{node.module}.{alias.name}" for alias in node.names} & set(MODULES)
            found |= inside
            if len(inside) < len(node.names) and node.module in MODULES:
                found.add(node.module)
    return found - {module}


def test_no_two_modules_import_each_other_by_whatever_way() -> None:
    """Modules that import none of those left are taken out, until only circles and their importers are left."""
    graph = {module: imported(module) for module in MODULES}
    while leaves := [module for module, targets in graph.items() if not targets & set(graph)]:
        for module in leaves:
            del graph[module]
    assert sorted(graph) == []
