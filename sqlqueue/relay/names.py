"""Which destinations are tracked."""

from collections.abc import Iterable
from typing import Any

import attrs

from sqlqueue.errors import DeclarationError


def _some(given: "Iterable[str] | str | None") -> frozenset[str] | None:
    if given is None:
        return None
    names = frozenset([given] if isinstance(given, str) else given)
    for name in names:
        if not isinstance(name, str):
            raise DeclarationError(f"names={given!r} holds {name!r}; give destinations as text")
    return names


@attrs.frozen
class Names:
    """Destinations; None stands for all of them, those of messages that name none included."""

    listed: frozenset[str] | None = attrs.field(default=None, converter=_some)

    def __contains__(self, name: Any) -> bool:
        return self.listed is None or name in self.listed

    def only(self, given: "Iterable[str] | str | None") -> frozenset[str] | None:
        """Those of them that are `given`, all where that is None; `DeclarationError` for one that is none of them."""
        asked = _some(given)
        if asked is None:
            return self.listed
        unknown = sorted(name for name in asked if name not in self)
        if unknown:
            raise DeclarationError(
                f"names={given!r}: {unknown[0]!r} is not tracked; tracked are {sorted(self.listed or ())}"
            )
        return asked
