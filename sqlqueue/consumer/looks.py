"""Which seat looks, and what the looks have seen, pure. Looks of several seats may overlap and end in any order."""

from collections.abc import Hashable

import attrs

from sqlqueue.strategies.base import PassOver


@attrs.frozen(eq=False)
class Look:
    """A look that has begun: the wake-ups that it sees, and the rows that it leaves alone."""

    wakes: int
    pass_over: PassOver


@attrs.define
class Looks:
    """The looks of one queue's seats. `looker`: the idle seat whose turn it is to look."""

    looker: Hashable | None = None
    _wakes: int = 0
    _seen: int = -1
    _last: Look | None = None
    _doubted: Look | None = None
    _passed_over: bool = False
    _busy: set[Hashable] = attrs.field(factory=set)

    def wake(self) -> None:
        """What looks from here on is to be seen."""
        self._wakes += 1

    def begin(self, pass_over: PassOver) -> Look:
        self._last = Look(self._wakes, pass_over)
        return self._last

    def found(self, seat: Hashable) -> None:
        """The seat has a row: it is busy until the look behind the row's settlement is over."""
        self._passed_over = False
        self._busy.add(seat)
        self._passes_on(seat)

    def found_nothing(self, seat: Hashable, look: Look) -> bool:
        """Whether that tells of the queue: a look that began later knows better."""
        self._busy.discard(seat)
        return look is self._last

    def saw_all(self, look: Look, *, passed_over: bool) -> None:
        """Nothing is due that was there when the look began, or what is due was `passed_over`: that counts where two
        looks say so, for a look may hide a row from those beside it while it tries it, and from itself."""
        sure = look is not self._doubted and (self._passed_over or not passed_over)
        self._passed_over = passed_over
        if sure:
            self._seen = look.wakes

    def doubt(self) -> None:
        """An earlier look passed over what the last one may not have seen."""
        self._doubted = self._last
        self.forget()

    def forget(self) -> None:
        """There may be more than any look has seen."""
        self._seen = -1

    def rests(self, seat: Hashable) -> None:
        self._busy.discard(seat)
        self._passes_on(seat)

    @property
    def at_rest(self) -> bool:
        """Whether nobody looks or will, and the last look, begun after the last wake-up, found nothing more."""
        return not self._busy and self.looker is None and self._seen == self._wakes

    def _passes_on(self, seat: Hashable) -> None:
        if self.looker is seat:
            self.looker = None
