"""The states of a consumer, pure: which move is allowed from where."""

import os
from enum import Enum

import attrs

from sqlqueue.errors import SQLQueueError


class State(Enum):
    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


ALLOWED: dict[State, tuple[State, ...]] = {
    State.NEW: (State.STARTING,),
    State.STARTING: (State.RUNNING, State.STOPPED),
    State.RUNNING: (State.STOPPING,),
    State.STOPPING: (State.STOPPED,),
    State.STOPPED: (State.STARTING,),
}


@attrs.define
class Lifecycle:
    """Where a consumer stands, in the process that started it."""

    state: State = State.NEW
    _process: int = attrs.field(factory=os.getpid)

    def move(self, state: State) -> None:
        """Go to `state`, or raise `SQLQueueError` that says what is in the way."""
        if state not in ALLOWED[self.state]:
            raise SQLQueueError(f"the consumer is {self.state.value}: it can be started when it is new or stopped")
        self.state = state
        if state is State.STARTING:
            self._process = os.getpid()

    def check_process(self) -> None:
        """Raise `SQLQueueError` in a forked child of the process that started the consumer: it has no threads here."""
        if self.state is not State.NEW and self._process != os.getpid():
            raise SQLQueueError(
                f"the consumer was started in process {self._process} and this is its child {os.getpid()}, which has "
                "none of its threads; make a consumer in the child"
            )
