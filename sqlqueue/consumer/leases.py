"""The lease timer, pure: when the leases of what is in flight must be extended. Instants are seconds of a monotonic
clock."""

import attrs

from sqlqueue.consumer.polling import NEVER


@attrs.define
class LeaseTimer:
    """One instant for all leases of a queue: half a lease after the oldest of them was written. `at` is that instant:
    `inf` where nothing is held.

    Leases written meanwhile are extended with the others, a little early: one statement for all of them.
    """

    lease: float
    at: float = attrs.field(default=NEVER, init=False)

    def written(self, now: float) -> None:
        """Leases were written, by a claim or an extension."""
        if self.at == NEVER:
            self.at = now + self.lease / 2

    def wait(self, now: float) -> float | None:
        """Seconds until the next extension; None where nothing is held."""
        return None if self.at == NEVER else max(0.0, self.at - now)

    def failed(self, now: float) -> None:
        """An extension failed: the next try comes well before the leases end."""
        self.at = now + self.lease / 8

    def extended(self, now: float, held: bool) -> None:
        """An extension went out at `now`; `held`: whether leases are still held."""
        self.at = now + self.lease / 2 if held else NEVER
