"""Locks on keys, which hold rows for the advisory-lock strategy: SQLite has no locks of a session.

A set keeps the threads of one object apart, and locks on a side file keep objects and processes apart. The side file
stays empty, and nobody deletes it: whoever opens it next would lock another file than those who have it open. It
is a file of its own because closing any descriptor of the database's drops the locks that SQLite has there.
"""

import errno
import os
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from io import FileIO
from secrets import randbelow
from typing import Protocol, TypeVar
from weakref import WeakSet

import attrs

from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue_sqlite.database import Location, fork_lock
from sqlqueue_sqlite.trouble import PoolClosedError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T")

# What somebody has to mend before a side file can be opened; other errors may pass by themselves.
_LASTING = (
    *(errno.EACCES, errno.EPERM, errno.EROFS),
    *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
)

#: Offsets are below this: where a file may end, and so where its last byte may be locked.
OFFSETS = 2**63

# Linux's struct flock with 64-bit offsets: type, whence, start, length, process. The process is 0 for locks of an open
# file description; `0q` pads as C does.
_FLOCK = struct.Struct("hhqqi0q")

_HELD = (errno.EAGAIN, errno.EACCES)  # POSIX leaves a kernel the choice


class LockMethod(Protocol):
    """How an open side file's locks are taken. None of it waits; an error that does not say "held" is let out."""

    def begin(self, descriptor: int) -> bool:
        """Once for a file just opened; False where somebody else has it for himself."""
        ...

    def take(self, descriptor: int, offset: int) -> bool:
        """Lock one byte; False where another open file has it."""
        ...

    def give(self, descriptor: int, offset: int) -> None:
        """Unlock one byte."""
        ...

    def end(self, descriptor: int) -> None:
        """Unlock everything, before the file is closed: a copy that a fork made just now may outlive it."""
        ...


@attrs.frozen
class ByteRanges:
    """A byte for each key, locked for the open file description: Linux.

    Unlike POSIX's own such locks they conflict between two descriptions of one process, and live until the last copy
    of their own is closed. A pair costs 2 µs, and some 20 ns for each lock held: the kernel keeps them in a list.
    """

    def begin(self, descriptor: int) -> bool:
        """Lock some byte and unlock it, so that a file system without locks is found at the start."""
        offset = randbelow(OFFSETS)
        with suppress(BlockingIOError):
            self._set(descriptor, fcntl.F_WRLCK, offset)
            self._set(descriptor, fcntl.F_UNLCK, offset)
        return True

    def take(self, descriptor: int, offset: int) -> bool:
        try:
            self._set(descriptor, fcntl.F_WRLCK, offset)
        except OSError as error:
            if error.errno not in _HELD:
                raise
            return False
        return True

    def give(self, descriptor: int, offset: int) -> None:
        self._set(descriptor, fcntl.F_UNLCK, offset)

    def end(self, descriptor: int) -> None:
        self._set(descriptor, fcntl.F_UNLCK, 0, length=0)  # to the end, wherever that is

    def _set(self, descriptor: int, kind: int, start: int, length: int = 1) -> None:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, start, length, 0))


@attrs.frozen
class WholeFile:
    """The whole file for one open file: where the kernel has no such locks, or Python does not name them."""

    def begin(self, descriptor: int) -> bool:
        try:
            if sys.platform == "win32":
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # a byte that need not exist
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                raise
            return False
        return True

    def take(self, descriptor: int, offset: int) -> bool:
        return True  # nobody else is let in

    def give(self, descriptor: int, offset: int) -> None:
        pass

    def end(self, descriptor: int) -> None:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def method_of_platform() -> LockMethod:
    """The finest there is. Other systems that have such locks lay out their struct differently."""
    if sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
        return ByteRanges()
    return WholeFile()


class FileLocks:
    """Locks on keys of one database, each for one holder among all threads and processes of this host.

    The kernel drops them when the process dies. Two keys with one hash wait for each other. For any thread.
    """

    def __init__(self, location: Location, *, method: LockMethod | None = None) -> None:
        self._location = location
        self._method = method or method_of_platform()
        self._file: FileIO | None = None
        self._closed = False
        self._reset()
        _every.add(self)

    def _reset(self) -> None:
        self._mutex = threading.Lock()  # over the kernel's calls too: none waits, and a closed number may be reused
        self._held: dict[int, str] = {}

    def open(self) -> None:
        """Open the side file, creating it where it is not there; also after `close`.

        Raises `SchemaError` where it cannot be opened; `Unsupported` where keys cannot be locked one by one here,
        and somebody else has the file; `OSError`, with the path, for any other trouble.
        """
        with self._mutex:  # decided: open from here on
            self._closed = False
            self._opened()

    def try_lock(self, key: str) -> bool:
        """Lock the key without waiting; False where anybody holds it, another thread of this object too.

        Opens as `open` does where that is still to do, such as in a forked process. Raises `PoolClosedError` after
        `close`; `OSError` where the kernel tells neither that it is held nor that it is not.
        """
        offset = _offset_of(key)
        with self._mutex:  # decided: whose the key is
            file = self._file or self._opened()
            if offset in self._held:
                return False
            if file is not None and not _ask(file, self._method.take, offset):
                return False
            self._held[offset] = key
            return True

    def unlock(self, key: str) -> bool:
        """Unlock the key; False where this object does not hold it. Raises `OSError` where it stays locked."""
        offset = _offset_of(key)
        with self._mutex:  # decided: nobody's, once the kernel has said so
            if self._held.get(offset) != key:
                return False
            if self._file is not None:
                _ask(self._file, self._method.give, offset)
            del self._held[offset]
            return True

    def close(self) -> None:
        """Unlock everything and close the side file. Nothing more is locked until `open`."""
        with self._mutex, fork_lock:  # decided: refused from here on; no fork copies a descriptor half closed
            self._closed = True
            self._held.clear()
            file, self._file = self._file, None
            if file is not None:
                with file:
                    _ask(file, self._method.end)

    def _opened(self) -> FileIO | None:
        """The side file, opened where it is not; None for a database in memory, which is one broker's alone."""
        if self._closed:
            raise PoolClosedError(f"the locks of the SQLite database {self._location.shown} were closed")
        if self._file is None and not self._location.memory:
            with fork_lock:  # a copy that no child knows of would keep this process's locks when it dies
                self._file = self._begun()
        return self._file

    def _begun(self) -> FileIO:
        file, begun = _open_side_file(self._location.side_file), False
        try:
            begun = _ask(file, self._method.begin)
        finally:
            if not begun:
                file.close()
        if not begun:
            raise Unsupported(
                f"another consumer process or broker has {file.name!s} for itself, since this platform cannot lock "
                "keys in it one by one; run one consumer process with one broker, or declare a lease column"
            )
        return file

    def _forget(self) -> None:
        """In a forked child: drop the copies. That unlocks nothing while the parent has its own."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._reset()


def _offset_of(key: str) -> int:
    """The same in every process; a lone surrogate, which no database stores, is a key as well."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % OFFSETS


def _open_side_file(path: str) -> FileIO:
    try:
        return FileIO(path, "r+", opener=_create)
    except OSError as error:
        if error.errno not in _LASTING:
            raise
        raise SchemaError(
            f"cannot open {path}, the file whose locks hold rows: {error.strerror}; let this user create it in its "
            "directory and write it, or declare a lease column"
        ) from None


def _create(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CREAT, 0o666)  # less the umask; Python adds O_CLOEXEC


def _ask(file: FileIO, act: Callable[..., T], *offset: int) -> T:
    """What the kernel answers; its error with the path, which by itself it never says."""
    try:
        return act(file.fileno(), *offset)
    except OSError as error:
        raise OSError(error.errno, error.strerror, file.name) from None


_every: "WeakSet[FileLocks]" = WeakSet()


def _after_fork() -> None:
    for locks in list(_every):
        locks._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
