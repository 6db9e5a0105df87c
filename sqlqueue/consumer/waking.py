"""A row that moved to its dead letter is a new one there, which this process's consumers are told at once."""

from collections.abc import Sequence

import attrs

from sqlqueue.broker import Broker
from sqlqueue.destination import Destination
from sqlqueue.observer import Event, Observer


@attrs.frozen
class WakeDestination:
    """Wakes the consumers of a queue's dead letters."""

    broker: Broker
    destination: Destination

    def notice(self, event: Event) -> None:
        if event.kind == "dead_lettered":
            self.broker.wake(self.destination)


def waking(broker: Broker, destination: Destination | None) -> Sequence[Observer]:
    """Who is to observe a queue whose dead letters go there."""
    return [] if destination is None else [WakeDestination(broker, destination)]
