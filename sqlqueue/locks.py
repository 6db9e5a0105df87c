"""Declare: the key of an advisory lock, and who keeps it."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sqlqueue.errors import DeclarationError

_FIELDS = re.compile(r"\{([^{}]*)\}")

#: Takes the driver's connection that serves the delivery, and the key.
LockFunction = Callable[[Any, str], bool]


@attrs.frozen
class AdvisoryLock:
    """A lock on each row's key holds the row; rows that share a key run one at a time, on every instance.

    `template`: the key, with fields of the table in braces, such as `"accounts-{account}"`; a NULL reads as an empty
    text. `shared`: the key is the template's text alone, so that other tables and other programs can lock it too; else
    it is kept apart by the table's name. `lock`, `unlock`: functions of the user's, for locks that another system
    keeps. Both are called as `f(connection, key)` with the driver's connection that serves the delivery, from the
    consumer's threads, and return whether they took it, without waiting, or let it go.

    A template without fields is one key for all rows: one of them is in work at a time.

    Raises `DeclarationError` for what is no template, and for one function without the other.
    """

    template: str
    shared: bool = False
    lock: LockFunction | None = None
    unlock: LockFunction | None = None

    def __attrs_post_init__(self) -> None:
        where = f"advisory_lock={self.template!r}"
        if type(self.template) is not str or not self.template:
            raise DeclarationError(f"{where}: give the key's template, such as 'jobs-{{id}}'")
        functions = (self.lock, self.unlock)
        if functions != (None, None) and not all(callable(one) for one in functions):
            raise DeclarationError(
                f"{where}: lock={self.lock!r}, unlock={self.unlock!r}; give two functions "
                "f(connection, key) -> bool, or neither"
            )

    @property
    def fields(self) -> Sequence[str]:
        """The fields that the template names, in order."""
        return tuple(_FIELDS.findall(self.template))

    @property
    def readable(self) -> bool:
        """Whether each brace has its partner."""
        return not set(_FIELDS.sub("", self.template)) & set("{}")

    @property
    def texts(self) -> Sequence[str]:
        """What stands before, between and behind the fields: one more than there are fields."""
        return tuple(_FIELDS.split(self.template)[::2])


def advisory_lock(given: "str | AdvisoryLock | None") -> AdvisoryLock | None:
    """The declared lock; a text is its template."""
    return given if given is None or isinstance(given, AdvisoryLock) else AdvisoryLock(given)
