"""Where the database is: a URL becomes a `Location`."""

import os
from pathlib import Path
from urllib.parse import unquote
from uuid import uuid4

import attrs

from sqlqueue.errors import DeclarationError

SCHEME = "sqlite:"

SIDE_FILE = "-sqlqueue-locks"

FORMS = "sqlite:///file.db (relative), sqlite:////absolute/path.db, or sqlite:// (in memory)"


@attrs.frozen
class Location:
    """`name` is what sqlite3 opens, as a URI where `uri`; `shown` is for people to read."""

    name: str
    shown: str
    memory: bool = False
    uri: bool = False

    @classmethod
    def file(cls, path: str) -> "Location":
        """A file. A relative path is settled now, so that a later change of directory moves nothing."""
        absolute = os.path.abspath(path)
        return cls(name=absolute, shown=absolute)

    @classmethod
    def in_memory(cls) -> "Location":
        """A database of its own, which lives while one connection to it is open."""
        return cls(name=f"file:/sqlqueue-{uuid4().hex}?vfs=memdb", shown="sqlite:// (in memory)", memory=True, uri=True)

    def existing(self) -> "Location":
        """The same, refused where the file does not exist rather than created."""
        if self.uri:
            return self
        return attrs.evolve(self, name=f"{Path(self.name).as_uri()}?mode=rw", uri=True)

    @property
    def side_file(self) -> str:
        """The path of the file whose locks hold rows: beside the real file, whatever links lead there."""
        return os.path.realpath(self.shown) + SIDE_FILE

    def obstacle(self) -> str | None:
        """Why no file can be there, as far as directories tell; None where one may be."""
        if self.uri:
            return None
        directory = os.path.dirname(self.name)
        if not os.path.isdir(directory):
            return f"there is no directory {directory}; create it, or correct the URL"
        if os.path.isdir(self.name):
            return "it is a directory; name a file in it"
        return None


def parse(url: str) -> Location:
    """The location that a URL names; a `DeclarationError` that says which forms there are."""
    rest = url[len(SCHEME) :]
    if rest == "//":
        return Location.in_memory()
    path = rest[len("///") :]
    if not rest.startswith("///") or not path:
        raise _refused(url, "no file is named behind three slashes")
    if set(path) & set("?#"):
        raise _refused(url, "it takes no parameters; in a file's name write ? as %3F and # as %23")
    decoded = unquote(path)
    if "\0" in decoded:
        raise _refused(url, "the path holds a NUL character")
    if decoded == ":memory:":
        raise _refused(url, "a database in memory is sqlite://")
    return Location.file(decoded)


def _refused(url: str, why: str) -> DeclarationError:
    return DeclarationError(f"database URL {url!r}: {why}; the forms are {FORMS}")
