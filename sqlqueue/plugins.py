"""Finds what plugins bring: entry points are loaded by name, so a machine without psycopg runs SQLite."""

import sys
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from sqlqueue import hookspecs
from sqlqueue.dialect import Dialect
from sqlqueue.errors import DialectNotFound, PublisherNotFound
from sqlqueue.publisher import Publisher

#: Entry points named by URL scheme, for dialects.
GROUP = hookspecs.PROJECT

#: Entry points named by URL scheme, for what relays send to.
PUBLISHERS = "sqlqueue.publishers"

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
    names = _names(GROUP)
    if isinstance(source, str) and not rest:
        shown = "a list of settings" if "=" in source else repr(source)  # they hold passwords
        raise DialectNotFound(f"{shown} is no database URL; it begins with one of: {_schemes(names)}")
    wanted = [scheme] if isinstance(source, str) else names
    troubles = _load(GROUP, wanted)
    found: Dialect | None = manager().hook.sqlqueue_dialect(source=source)
    if found is not None:
        return found
    kind = f"{type(source).__module__}.{type(source).__qualname__}"
    given = f"the URL scheme {scheme!r}" if scheme else f"{kind}, which should be a URL as text or a driver's pool"
    raise DialectNotFound(f"nothing installed serves {given}; installed are: {_schemes(names)}{_listed(troubles)}")


def publisher_for(url: Any) -> Publisher:
    """A new publisher to a URL, which connects at its first use; `PublisherNotFound` names what there is."""
    scheme, found, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    names = _names(PUBLISHERS)
    if not found:
        shown = "the text" if set(str(url)) & set(":@=") else repr(url)  # it may hold a password
        raise PublisherNotFound(f"{shown} is no publisher's URL; it begins with one of: {_schemes(names)}")
    troubles = _load(PUBLISHERS, [scheme])
    publisher: Publisher | None = None
    try:
        publisher = manager().hook.sqlqueue_publisher(url=url)
    except ImportError as error:  # of a plugin that imports its client library where it needs it
        troubles |= {entry.name: _missing(entry, error) for entry in entry_points(group=PUBLISHERS, name=scheme)}
    if publisher is not None:
        return publisher
    raise PublisherNotFound(
        f"nothing installed publishes to the URL scheme {scheme!r}; installed are: {_schemes(names)}{_listed(troubles)}"
    )


def _names(group: str) -> list[str]:
    return sorted({entry.name for entry in entry_points(group=group)})


def _listed(troubles: Mapping[str, str]) -> str:
    return "".join(f"; {name}: {error}" for name, error in troubles.items())


def _missing(entry: EntryPoint, error: ImportError) -> str:
    """What is missing, with the extra that brings it, which is named as the plugin's module."""
    extra = entry.module.rpartition(".")[2].removeprefix("sqlqueue_")
    return f"{error} (pip install 'sqlqueue[{extra}]')"


def _schemes(names: list[str]) -> str:
    return ", ".join(f"{name}://" for name in names) or "none"


def _load(group: str, names: list[str]) -> dict[str, str]:
    """Register a group's entry points of these names; what could not be imported, and why."""
    troubles: dict[str, str] = {}
    plugins = manager()
    for entry in entry_points(group=group):
        if entry.name not in names:
            continue
        try:
            plugin = entry.load()
        except ImportError as error:
            troubles[entry.name] = _missing(entry, error)
            continue
        if not plugins.is_registered(plugin):
            plugins.register(plugin)
    return troubles
