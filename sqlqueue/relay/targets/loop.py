"""Clients of asyncio: an event loop on a thread of its own, which serves the connection while nobody publishes too."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, Protocol

import attrs

from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.publishing import CLOSED, ClientHolder, PublishResult, Refused

#: Seconds for a connection's end.
GRACE = 2.0

#: Messages of one publish that may each end a session of their own.
MOST_ENDS = 10


class Interrupted(Refused):
    """A message was not confirmed because another one, most likely, had the broker end what both were sent by."""


class Session(Protocol):
    """A connection to a broker. For its event loop alone."""

    @property
    def usable(self) -> bool:
        """Whether more may be sent on it; where not, another is opened."""
        ...

    async def send(self, message: OutgoingMessage) -> None:
        """Send a message, and return when the broker has confirmed it; `Refused` says why it did not. `Interrupted`:
        it may be sent again at once, by a session where it is alone."""
        ...

    async def close(self) -> None:
        """Close the connection; what was not confirmed yet is `Refused`."""
        ...


@attrs.define(eq=False)
class LoopThread:
    """A session on an event loop on a thread; `connect` opens one, or another where that was lost.

    `publish` and `close` are for any thread, what is private for the loop.
    """

    _name: str
    _connect: Callable[[], Awaitable[Session]]
    _loop: asyncio.AbstractEventLoop = attrs.field(init=False, factory=asyncio.new_event_loop)
    _opening: "asyncio.Task[Session] | None" = attrs.field(init=False, default=None)
    _publishing: "set[asyncio.Task[Any]]" = attrs.field(init=False, factory=set)
    _closing: "set[asyncio.Task[None]]" = attrs.field(init=False, factory=set)
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A daemon: a program that forgot to close its publisher ends all the same.
        self._thread = threading.Thread(target=self._run, name=f"sqlqueue-{self._name}", daemon=True)
        self._thread.start()

    def publish(self, result: PublishResult, timeout: float) -> None:
        """Send what is open, and return when each is confirmed or refused, or so many seconds are over."""
        with self._lock:  # whether it still comes before the end
            if self._closed:
                raise Refused(CLOSED)
            published = asyncio.run_coroutine_threadsafe(self._publish(result, timeout), self._loop)
        try:
            published.result()
        except CancelledError:
            raise Refused(CLOSED) from None

    def close(self) -> None:
        with self._lock:  # nothing is submitted from here on
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())  # it looked names up
        self._loop.close()

    async def _publish(self, result: PublishResult, timeout: float) -> None:
        until = self._loop.time() + timeout
        task = asyncio.current_task()
        assert task is not None
        self._publishing.add(task)
        try:
            session = await self._session(timeout)
            sending = [asyncio.ensure_future(_send(session, result, indexes)) for indexes in result.open_by_key()]
            interrupted = await _all_or_late(sending, until - self._loop.time())
            if any(interrupted):
                await _all_or_late([asyncio.ensure_future(self._send_singly(result))], until - self._loop.time())
        except Refused as error:
            for index in result.open_indexes():
                result.refuse(index, str(error))
        finally:
            self._publishing.discard(task)

    async def _send_singly(self, result: PublishResult) -> None:
        """Send what is open one by one, by a session that nobody else has, so that whoever ends it is the one."""
        session, ends = None, 0
        try:
            for index in result.open_indexes():
                if not result.is_open(index):
                    continue
                session = session or await self._connect()
                try:
                    await session.send(result.messages[index])
                except Refused as error:
                    result.refuse(index, str(error))
                else:
                    result.confirm(index)
                if not session.usable:
                    self._close(session)
                    session, ends = None, ends + 1
                    if ends == MOST_ENDS:
                        raise Refused(f"{MOST_ENDS} messages before it had the broker end their session; it waits")
        finally:
            if session is not None:
                self._close(session)

    def _close(self, session: Session) -> None:
        """Close a session while nobody waits for that."""
        closing = asyncio.ensure_future(session.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _session(self, timeout: float) -> Session:
        """The session, or a new one; one is opened at a time, for all that wait."""
        if self._opening is None or (self._opening.done() and not _usable(self._opening)):
            self._opening = asyncio.ensure_future(self._connect())
        opening = self._opening
        await asyncio.wait({opening}, timeout=timeout)
        if not opening.done():
            opening.cancel()
            raise Refused(f"no connection within {timeout:g} s")
        if opening.cancelled():
            raise Refused(CLOSED if self._closed else f"no connection within {timeout:g} s")
        return opening.result()

    async def _shut(self) -> None:
        opening = self._opening
        if opening is not None and not opening.done():
            opening.cancel()
        elif opening is not None and _usable(opening):
            await opening.result().close()
        if self._publishing:
            await asyncio.wait(self._publishing, timeout=GRACE)
        if self._closing:
            await asyncio.wait(self._closing, timeout=GRACE)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await _end(list(others))


def _usable(opening: "asyncio.Task[Session]") -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().usable


async def _send(session: Session, result: PublishResult, indexes: Sequence[int]) -> bool:
    """One after the other: a later message of the key never overtakes one that is lost or refused. Whether it was
    interrupted; those behind are then still open."""
    for index in indexes:
        try:
            await session.send(result.messages[index])
        except Interrupted:
            return True
        except Refused as error:
            result.refuse(index, str(error))
            return False
        result.confirm(index)
    return False


async def _all_or_late(tasks: "Sequence[asyncio.Task[Any]]", timeout: float) -> Sequence[Any]:
    """What those tasks returned that ended in time."""
    if not tasks:
        return ()
    _, late = await asyncio.wait(tasks, timeout=max(0.0, timeout))
    await _end(list(late))
    return [task.result() for task in tasks if not task.cancelled()]  # an error that nobody foresaw is the caller's


async def _end(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def publish_all(name: str, threads: ClientHolder[LoopThread], result: PublishResult, timeout: float) -> None:
    """Send what is open in the result. Raises `PublishError` unless all was confirmed."""
    otherwise = f"not confirmed within {timeout:g} s"
    if result.open_indexes():
        try:
            threads.get().publish(result, timeout)
        except Refused as error:
            otherwise = str(error)
    result.raise_unconfirmed(name, otherwise)
