"""Finds what plugins bring: entry points are loaded by name, so a machine without psycopg runs SQLite."""

import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from sqlqueue import hookspecs
from sqlqueue.dialect import Dialect
from sqlqueue.errors import DialectNotFound

#: Entry points named by URL scheme, for dialects.
GROUP = hookspecs.PROJECT

#: Entry points named by the module that a program has imported where it needs them.
INTEGRATIONS = "sqlqueue.integrations"

_loading = threading.Lock()


def manager() -> pluggy.PluginManager:
    """The process's plugin manager, with the integrations of what the program has imported by now; nothing is imported
    for one that it has not. `manager().register(plugin)` adds a plugin by hand."""
    plugins = _manager()
    for entry in _integrations():
        if entry.name in sys.modules and not plugins.has_plugin(entry.value):
            with _loading:  # two threads may come at once, and it is registered once
                if not plugins.has_plugin(entry.value):
                    plugins.register(entry.load(), name=entry.value)
    return plugins


@lru_cache(maxsize=1)
def _manager() -> pluggy.PluginManager:
    plugins = pluggy.PluginManager(hookspecs.PROJECT)
    plugins.add_hookspecs(hookspecs)
    return plugins


@lru_cache(maxsize=1)
def _integrations() -> Sequence[EntryPoint]:
    return tuple(entry_points(group=INTEGRATIONS))


def dialect_for(source: Any) -> Dialect:
    """The dialect that serves a URL or a pool; `DialectNotFound` names what there is."""
    scheme, _, rest = source.partition(":") if isinstance(source, str) else ("", "", "")
    names = sorted({entry.name for entry in entry_points(group=GROUP)})
    if isinstance(source, str) and not rest:
        shown = "a list of settings" if "=" in source else repr(source)  # they hold passwords
        raise DialectNotFound(f"{shown} is no database URL; it begins with one of: {_schemes(names)}")
    wanted = [scheme] if isinstance(source, str) else names
    troubles = _load(wanted)
    found: Dialect | None = manager().hook.sqlqueue_dialect(source=source)
    if found is not None:
        return found
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    given = f"the URL scheme {scheme!r}" if scheme else f"{kind}, which should be a URL as text or a driver's pool"
    trouble = "".join(f"; {name}: {error}" for name, error in troubles.items())
    raise DialectNotFound(f"nothing installed serves {given}; installed are: {_schemes(names)}{trouble}")


def _schemes(names: list[str]) -> str:
    return ", ".join(f"{name}://" for name in names) or "none"


def _load(names: list[str]) -> dict[str, str]:
    """Register the entry points of these names; what could not be imported, and why."""
    troubles: dict[str, str] = {}
    plugins = manager()
    for entry in entry_points(group=GROUP):
        if entry.name not in names:
            continue
        try:
            plugin = entry.load()
        except ImportError as error:
            extra = entry.value.removeprefix("sqlqueue_")
            troubles[entry.name] = f"{error} (pip install 'sqlqueue[{extra}]')"
            continue
        if not plugins.is_registered(plugin):
            plugins.register(plugin)
    return troubles
