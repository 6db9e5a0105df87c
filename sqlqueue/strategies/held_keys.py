"""The keys whose locks one consumer holds, taken and released by functions of a connection and a key."""

import logging
from collections.abc import Callable, Sequence
from threading import Lock

from sqlqueue.dialect import Connection
from sqlqueue.locks import LockFunction

log = logging.getLogger("sqlqueue")


class HeldKeys:
    """For any thread. Whatever the functions raise passes through."""

    def __init__(self, lock: LockFunction, unlock: LockFunction) -> None:
        self._lock, self._unlock = lock, unlock
        self._held: set[str] = set()
        self._changing = Lock()

    def all(self) -> Sequence[str]:
        with self._changing:  # decided: which keys this consumer holds
            return tuple(self._held)

    def hold(self, connection: Connection, key: str) -> bool:
        """Lock the key; False where another row of this consumer, or somebody else, holds it."""
        with self._changing:  # decided: who of this consumer tries the key
            if key in self._held:
                return False
            self._held.add(key)
        taken = False
        try:
            taken = bool(self._lock(connection.driver, key))
        finally:
            if not taken:
                with self._changing:  # decided: it is nobody's here
                    self._held.discard(key)
        return taken

    def lock_again(self, connection: Connection, key: str, still: Callable[[], bool]) -> bool:
        """Lock a key that is held for another connection too, where the functions lock for one; not unless the row is
        `still()` ours, which is the answer."""
        ours, locked = False, bool(self._lock(connection.driver, key))
        try:
            ours = still()
        finally:
            if locked and not ours and not self._unlock(connection.driver, key):
                connection.close()
        return ours

    def release(self, connection: Connection, key: str) -> bool:
        """Release the key's lock; whether that is confirmed."""
        released = False
        try:
            released = bool(self._unlock(connection.driver, key))
        finally:
            with self._changing:  # decided: others of this consumer may try it
                self._held.discard(key)
            if not released:
                log.warning("an advisory lock on %r was not released; its connection is closed", key)
        return released

    def release_all(self, connection: Connection, keys: Sequence[str]) -> tuple[bool, Exception | None]:
        """Release the locks; whether all were, and what a function raised."""
        released, failed = True, None
        for key in keys:
            try:
                released = self.release(connection, key) and released
            except Exception as error:  # noqa: BLE001 - whatever the user's function raises, the others are released
                released, failed = False, error
        return released, failed

    def let_go(self, connection: Connection, keys: Sequence[str]) -> None:
        """Release the locks. Where that is not confirmed the connection is closed, and with it what its
        session holds."""
        released, failed = self.release_all(connection, keys)
        if not released:
            connection.close()
        if failed is not None:
            raise failed
