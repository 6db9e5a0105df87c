"""What a handler may know of the row that it works on."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.errors import TransactionError
from sqlqueue.headers import RECORD_HEADER
from sqlqueue.strategies.base import Claim


@attrs.define(eq=False)
class Delivery:
    """One delivery of one row.

    `attempt` is 1 on the first delivery, None on a table that does not count. `key` and `group` are None where the
    table has no such column; `headers` are empty there.
    """

    queue: str
    claim: Claim = attrs.field(repr=False)
    id: Any = None
    key: Any = None
    group: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    _lost: bool = attrs.field(default=False, repr=False)
    _connection: Any = attrs.field(default=None, repr=False)
    _over: bool = attrs.field(default=False, repr=False)
    _opener: Callable[[], None] | None = attrs.field(default=None, repr=False)
    _kept_back: tuple[str, ...] = attrs.field(default=(), repr=False)
    _told: "tuple[WhenProcessed, ...]" = attrs.field(default=(), repr=False)

    @property
    def connection(self) -> Any:
        """The driver's own connection (psycopg or sqlite3) inside the delivery's transaction, where the handler is
        `transactional`: what it writes commits with the acknowledgement and is undone by every other outcome. Do not
        commit, roll back or close it.

        Raises `TransactionError` where the handler is not transactional, and once it has returned.
        """
        if self._connection is not None:
            return self._connection
        if self._over:
            raise TransactionError("the handler has returned, and its delivery's transaction is over")
        raise TransactionError(
            "only a transactional handler's delivery has a connection: register it with handler(transactional=True)"
        )

    @property
    def opened(self) -> bool:
        """Whether its transaction is open."""
        return self._connection is not None

    def opens_by(self, opener: Callable[[], None]) -> None:
        """What `open` calls."""
        self._opener = opener

    def open(self) -> None:
        """Begin the delivery's transaction; raises where the database does not let it."""
        assert self._opener is not None, "the handler is not transactional"
        self._opener()

    def lend(self, connection: Any) -> None:
        """Let the handler have its delivery's connection."""
        self._connection = connection

    def end(self) -> None:
        """Take the connection back."""
        self._connection, self._opener, self._over = None, None, True

    def when_processed(self, call: "WhenProcessed") -> None:
        """Have `call` called once the message is processed: acknowledged or dropped, with its replies confirmed.

        That is before the row is settled, in the handler's transaction where it has one; behind the settlement where
        that undoes the transaction. It is called once for those of a batch that ask for the same.
        """
        self._told += (call,)

    def keep_back(self, header: str) -> None:
        """Let no reply have this header of the message, for it is about the message alone; not even one that copies
        its headers."""
        self._kept_back += (header,)

    def headers_of_reply(self, own: Mapping[str, str]) -> dict[str, str]:
        """The headers of a reply that gives itself these: the message's beside them, but for what is about that
        alone."""
        inherited = {name: value for name, value in self.headers.items() if name != RECORD_HEADER}
        headers = {**inherited, **own}
        for name in self._kept_back:
            if name in headers and headers[name] == self.headers.get(name):
                del headers[name]
        return headers

    @property
    def asked(self) -> bool:
        """Whether anybody is to be told once it is processed."""
        return bool(self._told)

    @property
    def attempt(self) -> int | None:
        return self.claim.attempt

    @property
    def expires(self) -> datetime | None:
        """When the lease ends unless it is extended, aware UTC; None where no lease holds the row."""
        return self.claim.expires

    @property
    def lost(self) -> bool:
        """Whether the row is known to have been lost, such as by the end of its lease: what the handler still does
        will not be acknowledged."""
        return self._lost

    def lose(self) -> None:
        """Note that the row belongs to somebody else now."""
        self._lost = True


#: Told of deliveries that are processed; it raises nothing.
WhenProcessed = Callable[[Sequence[Delivery]], None]


def tell_processed(deliveries: Sequence[Delivery]) -> None:
    """Call what was to be called once these are processed."""
    asked: dict[WhenProcessed, list[Delivery]] = {}
    for delivery in deliveries:
        for call in delivery._told:
            asked.setdefault(call, []).append(delivery)
    for call, of in asked.items():
        call(of)
