"""A Django site without a project: its settings are those of the test's database."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import django
from django.conf import settings
from django.db import connections

from tests.support.database import Database

if not settings.configured:
    settings.configure(DATABASES={}, INSTALLED_APPS=[], USE_TZ=True, LOGGING_CONFIG=None)
    django.setup()


def settings_for(database: Database, **more: Any) -> dict[str, Any]:
    if database.kind == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": database.name, **more}
    from psycopg.conninfo import conninfo_to_dict

    parameters = conninfo_to_dict(database.url)
    options = {name: value for name, value in parameters.items() if name != "dbname"}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters["dbname"],
        "OPTIONS": options,
        **more,
    }


@contextmanager
def serving(database: Database, **more: Any) -> Iterator[None]:
    """The site's `default` database is this one, in every thread."""
    before = connections.settings
    connections.settings = connections.configure_settings({"default": settings_for(database, **more)})
    if hasattr(connections._connections, "default"):
        del connections["default"]  # this thread's, of another test
    try:
        yield
    finally:
        connections["default"].close()
        del connections["default"]
        connections.settings = before
