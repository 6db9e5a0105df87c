"""Another sqlqueue table as a target: each message becomes a row there, and its consumers wake."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlqueue.dialect import Trouble
from sqlqueue.errors import DeclarationError, PublishError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.queue import Conflict, Queue
from sqlqueue.relay.targets.publishing import BEHIND
from sqlqueue.roles import Role

#: The header that carries a message's id where no column does.
ID_HEADER = "message-id"

#: A key's text as a column of another type holds it.
KEYS: Mapping[Any, Callable[[str], Any]] = {int: int, UUID: UUID}


class QueuePublisher:
    """Enqueues each message to `queue`, all of one call in one transaction.

    Key and headers fill the columns of these roles, where the table has them. The message's id goes into the field
    `id_field`; by default it is the row's own id where the database does not generate that, else the header
    `message-id`. With a unique index on it and `on_conflict="ignore"` a message that comes twice is one row. A message
    with a destination goes to the group of that name.
    """

    def __init__(self, queue: Queue, *, id_field: str | None = None, on_conflict: Conflict = "error") -> None:
        self._queue, self._on_conflict = queue, on_conflict
        self._id_field = _id_field(queue, id_field)
        self._closed = False

    @property
    def name(self) -> str:
        return f"{self._queue.broker.dialect.source} {self._queue.name}"

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        if self._closed:
            raise PublishError(f"{self.name}: the publisher is closed")
        try:
            self._insert(messages)
        except Exception as error:
            if self._is_unreachable(error) or len(messages) == 1:
                raise PublishError(f"{self.name}: {error}", dict.fromkeys(range(len(messages)), str(error))) from error
        else:
            return
        unconfirmed = self._insert_singly(messages)  # one that is refused is to keep no other
        if unconfirmed:
            raise PublishError(
                f"{self.name}: {len(unconfirmed)} of {len(messages)} messages not enqueued, the first because of "
                f"{next(iter(unconfirmed.values()))}",
                unconfirmed,
            )

    def _is_unreachable(self, error: Exception) -> bool:
        """Whether it is no message's doing, so that the next one would wait for the same."""
        broker = self._queue.broker
        return broker.closed or broker.dialect.classify(error) is not Trouble.PERMANENT

    def _insert_singly(self, messages: Sequence[OutgoingMessage]) -> Mapping[int, str]:
        """Insert the messages one by one; those that were not, by index, and why."""
        unconfirmed: dict[int, str] = {}
        failed_keys: set[str] = set()
        unreachable: str | None = None
        for index, message in enumerate(messages):
            if message.key in failed_keys:
                unconfirmed[index] = BEHIND
            elif unreachable is not None:
                unconfirmed[index] = unreachable
            else:
                try:
                    self._insert([message])
                    continue
                except Exception as error:  # noqa: BLE001 - it is raised with the message's index
                    unconfirmed[index] = str(error)
                    unreachable = str(error) if self._is_unreachable(error) else None
            if message.key is not None:
                failed_keys.add(message.key)
        return unconfirmed

    def _insert(self, messages: Sequence[OutgoingMessage]) -> None:
        broker = self._queue.broker
        queues = [self._queue_of(message) for message in messages]
        calls = [self._insertion(queue, message) for queue, message in zip(queues, messages, strict=True)]
        woken = list(dict.fromkeys(queues))
        for queue in woken:
            calls += broker.notifications(queue)
        with broker.pool.connection() as connection:
            connection.run(calls)
        for queue in woken:
            broker.wake(queue)

    def _queue_of(self, message: OutgoingMessage) -> Queue:
        queue = self._queue
        if message.destination is None or message.destination == queue.group:
            return queue
        if queue.group is None and queue.spec.has(Role.GROUP):
            return queue.broker.queue(queue.spec, group=message.destination)
        raise PublishError(
            f"message {message.id} has the destination {message.destination!r}, which the queue {queue.name} cannot "
            "serve; leave it out, or name a group of a table that has groups"
        )

    def _insertion(self, queue: Queue, message: OutgoingMessage) -> Any:
        key, headers = queue.spec.role(Role.PARTITION_KEY), dict(message.headers)
        fields: dict[str, Any] = {}
        if self._id_field is not None:
            fields[self._id_field] = message.id
        elif message.id is not None:
            headers[ID_HEADER] = message.id  # not that of an earlier hop
        return queue.insertion(
            message.payload,
            key=None if key is None or message.key is None else KEYS.get(key.type, str)(message.key),
            headers=headers if headers and queue.spec.has(Role.HEADERS) else None,
            fields=fields,
            on_conflict=self._on_conflict,
        )

    def close(self) -> None:
        """Enqueue nothing more; the queue's broker stays open."""
        self._closed = True


def _id_field(queue: Queue, given: str | None) -> str | None:
    spec = queue.spec
    if not spec.has(Role.PAYLOAD):
        raise DeclarationError(f"queue {queue.name}: its table has no payload to publish to; mark column.payload()")
    fields = [column.field for column in spec.columns if not column.generated]
    if given is None:
        return None if spec.id.generated else spec.id.field
    if given not in fields:
        raise DeclarationError(
            f"queue {queue.name}: id_field={given!r} is no field that an insert names; those are {', '.join(fields)}"
        )
    return given
