"""Ways to hold keys between the processes of one host, by locks that the kernel drops when a process dies."""

import errno
import struct
import sys
from secrets import randbelow
from typing import Protocol

import attrs

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

#: Offsets are below this: where a file may end, and so where its last byte may be locked.
OFFSETS = 2**63

# Linux's struct flock with 64-bit offsets: type, whence, start, length, process. The process is 0 for locks of an open
# file description; `0q` pads as C does.
_FLOCK = struct.Struct("hhqqi0q")

_HELD = (errno.EAGAIN, errno.EACCES)  # POSIX leaves a kernel the choice


class Mechanism(Protocol):
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
        try:
            _set(descriptor, fcntl.F_WRLCK, offset, 1)
        except BlockingIOError:
            return True
        _set(descriptor, fcntl.F_UNLCK, offset, 1)
        return True

    def take(self, descriptor: int, offset: int) -> bool:
        try:
            _set(descriptor, fcntl.F_WRLCK, offset, 1)
        except OSError as error:
            if error.errno not in _HELD:
                raise
            return False
        return True

    def give(self, descriptor: int, offset: int) -> None:
        _set(descriptor, fcntl.F_UNLCK, offset, 1)

    def end(self, descriptor: int) -> None:
        _set(descriptor, fcntl.F_UNLCK, 0, 0)  # length 0 is to the end, wherever that is


@attrs.frozen
class WholeFile:
    """The whole file for one open file: where the kernel has no such locks, or Python does not name them."""

    def begin(self, descriptor: int) -> bool:
        try:
            _lock_file(descriptor)
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
        _unlock_file(descriptor)


def _set(descriptor: int, kind: int, start: int, length: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, 0, start, length, 0))


def _lock_file(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # a byte that need not exist
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock_file(descriptor: int) -> None:
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def of_this_platform() -> Mechanism:
    """The finest there is. Other systems that have such locks lay out their struct differently."""
    if sys.platform == "linux" and hasattr(fcntl, "F_OFD_SETLK"):
        return ByteRanges()
    return WholeFile()
