"""Clients of asyncio: an event loop on a thread of its own, which serves the connection while nobody publishes too."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any, Protocol

import attrs

from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.holding import CLOSED, Holding
from sqlqueue.relay.targets.tally import Refused, Tally

#: Seconds for a goodbye.
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
        """Say goodbye; what was not confirmed yet is `Refused`."""
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
    _parting: "set[asyncio.Task[None]]" = attrs.field(init=False, factory=set)
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        # A daemon: a program that forgot to close its publisher ends all the same.
        self._thread = threading.Thread(target=self._run, name=f"sqlqueue-{self._name}", daemon=True)
        self._thread.start()

    def publish(self, tally: Tally, timeout: float) -> None:
        """Send what is open, and return when each is confirmed or refused, or so many seconds are over."""
        with self._lock:  # whether it still gets before the goodbye
            if self._closed:
                raise Refused(CLOSED)
            published = self._submit(self._publish(tally, timeout))
        try:
            published.result()
        except CancelledError:
            raise Refused(CLOSED) from None

    def close(self) -> None:
        with self._lock:  # nothing is submitted from here on
            if self._closed:
                return
            self._closed = True
        self._submit(self._shut()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _submit(self, work: Coroutine[Any, Any, None]) -> "Future[None]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())  # it looked names up
        self._loop.close()

    async def _publish(self, tally: Tally, timeout: float) -> None:
        until = self._loop.time() + timeout
        task = asyncio.current_task()
        assert task is not None
        self._publishing.add(task)
        try:
            session = await self._session(timeout)
            lines = [asyncio.ensure_future(_send(session, tally, line)) for line in tally.lines()]
            interrupted = await _all_or_late(lines, until - self._loop.time())
            if any(interrupted):
                await _all_or_late([asyncio.ensure_future(self._each_alone(tally))], until - self._loop.time())
        except Refused as error:
            for place in tally.open_places():
                tally.refuse(place, str(error))
        finally:
            self._publishing.discard(task)

    async def _each_alone(self, tally: Tally) -> None:
        """Send what is open one by one, by a session that nobody else has, so that whoever ends it is the one."""
        session, ends = None, 0
        try:
            for place in tally.open_places():
                message = tally.messages[place]
                if tally.blocks(message):
                    continue
                session = session or await self._connect()
                try:
                    await session.send(message)
                except Refused as error:
                    tally.refuse(place, str(error))
                else:
                    tally.confirm(place)
                if not session.usable:
                    self._part(session)
                    session, ends = None, ends + 1
                    if ends == MOST_ENDS:
                        raise Refused(f"{MOST_ENDS} messages before it had the broker end their session; it waits")
        finally:
            if session is not None:
                self._part(session)

    def _part(self, session: Session) -> None:
        """Close a session while nobody waits for that."""
        parting = asyncio.ensure_future(session.close())
        self._parting.add(parting)
        parting.add_done_callback(self._parting.discard)

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
        if self._parting:
            await asyncio.wait(self._parting, timeout=GRACE)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await _end(list(others))


def _usable(opening: "asyncio.Task[Session]") -> bool:
    return not opening.cancelled() and opening.exception() is None and opening.result().usable


async def _send(session: Session, tally: Tally, line: Sequence[int]) -> bool:
    """One after the other: a later message of the key never overtakes one that is lost or refused. Whether it was
    interrupted; the rest of the line is then still open."""
    for place in line:
        try:
            await session.send(tally.messages[place])
        except Interrupted:
            return True
        except Refused as error:
            tally.refuse(place, str(error))
            return False
        tally.confirm(place)
    return False


async def _all_or_late(lines: "Sequence[asyncio.Task[Any]]", timeout: float) -> Sequence[Any]:
    """What those answered that ended in time."""
    if not lines:
        return ()
    _, late = await asyncio.wait(lines, timeout=max(0.0, timeout))
    await _end(list(late))
    return [line.result() for line in lines if not line.cancelled()]  # an error that nobody foresaw is the caller's


async def _end(tasks: "Sequence[asyncio.Task[Any]]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def publish_all(name: str, thread: Holding[LoopThread], tally: Tally, timeout: float) -> None:
    """Send what is open in the tally. Raises `PublishError` unless all was confirmed."""
    otherwise = f"not confirmed within {timeout:g} s"
    if tally.open_places():
        try:
            thread.get().publish(tally, timeout)
        except Refused as error:
            otherwise = str(error)
    tally.close(name, otherwise)
