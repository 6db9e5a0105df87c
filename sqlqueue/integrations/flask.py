"""Flask: handlers run inside the application context of an app."""

from typing import TYPE_CHECKING, Any

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import manager

if TYPE_CHECKING:
    from flask import Flask

NAME = "sqlqueue.integrations.flask"


@attrs.frozen
class AppContext:
    """Around every handler, a context of `app`: `current_app`, and what extensions tear down with it."""

    app: "Flask"

    @hookimpl
    def sqlqueue_wrap_handler(self, queue: str, call: Any) -> Any:
        def in_context(message: Any, delivery: Any) -> Any:
            with self.app.app_context():
                return call(message, delivery)

        return in_context


def init_app(app: "Flask") -> None:
    """Have every handler of the consumers that start from now on run inside `app.app_context()`, one for each delivery.

    A later call with another app takes the place of this one. Raises `DeclarationError` for what is no app.
    """
    if not callable(getattr(app, "app_context", None)):
        raise DeclarationError(f"{app!r} is no Flask app; give the app itself")
    plugins = manager()
    if plugins.has_plugin(NAME):
        plugins.unregister(name=NAME)
    plugins.register(AppContext(app), name=NAME)
