"""The values that every statement of a queue may name: *now* as each column holds it, the group, the cap, who waits."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from sqlqueue.column import Role
from sqlqueue.dialect import Converter
from sqlqueue.strategies.base import NOBODY, PassOver
from sqlqueue.words import Words

#: The roles whose columns statements compare *now* with, or set to it.
MOMENTS = (Role.LEASE, Role.RETRY_AFTER, Role.PROCESSED_AT)


class Binding:
    """What one queue's statements bind; beside the rest `constants`, and `moments` that are made of *now*."""

    def __init__(
        self,
        words: Words,
        *,
        group: str | None,
        cap: int | None,
        constants: Mapping[str, Any] | None = None,
        moments: Mapping[str, Callable[[datetime], Any]] | None = None,
    ) -> None:
        self._constants: dict[str, Any] = {"group": group, "cap": cap, **(constants or {})}
        self._nows = [(f"now_{role.value}", words.now_encoder(role)) for role in MOMENTS if words.spec.has(role)]
        self._nows += (moments or {}).items()
        self._encode_list: Converter = words.dialect.list_encoder() or list
        self._constants |= self._passed(NOBODY)

    def values(self, now: datetime, pass_over: PassOver = NOBODY) -> dict[str, Any]:
        values = dict(self._constants)
        for name, encode in self._nows:
            values[name] = encode(now)
        if pass_over is not NOBODY:
            values |= self._passed(pass_over)
        return values

    def _passed(self, pass_over: PassOver) -> dict[str, Any]:
        return {"passed_keys": self._encode_list(pass_over.keys), "passed_ids": self._encode_list(pass_over.ids)}
