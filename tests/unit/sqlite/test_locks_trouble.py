"""Side files that cannot be opened, and kernels that will not lock."""

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sqlqueue.errors import SchemaError
from sqlqueue_sqlite.database import Location
from sqlqueue_sqlite.locks import ByteRanges, FileLocks, WholeFile
from tests.support.leftovers import open_files

NOBODY = 65534

only_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="opens a path without its file (O_PATH)")


class WithoutLocks(WholeFile):
    """A file system that has none, such as NFS without its lock daemon."""

    def begin(self, descriptor: int) -> bool:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@contextmanager
def nobody() -> Iterator[None]:
    """As a user with no rights, where root runs the tests."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def unusable(locks: FileLocks) -> Iterator[None]:
    """The descriptor leads to no open file for a while, so that the kernel refuses any lock on it."""
    assert locks._file is not None
    number = locks._file.fileno()
    saved, path = os.dup(number), os.open("/", os.O_PATH)
    os.dup2(path, number)
    try:
        yield
    finally:
        os.dup2(saved, number)
        os.close(saved)
        os.close(path)


def locks_of(path: Path) -> FileLocks:
    return FileLocks(Location.file(str(path)))


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs another user")
def test_a_directory_that_cannot_be_written_is_named_with_the_mend(tmp_path: Path) -> None:
    directory = tmp_path / "closed"
    directory.mkdir(0o500)
    with nobody(), pytest.raises(SchemaError) as raised:
        locks_of(directory / "shop.db").open()
    assert str(raised.value) == (
        f"cannot open {directory}/shop.db-sqlqueue-locks, the file whose locks hold rows: Permission denied; "
        "let this user create it in its directory and write it, or declare a lease column"
    )


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=re.escape(f"{tmp_path}/missing/shop.db-sqlqueue-locks")):
        locks_of(tmp_path / "missing" / "shop.db").open()


def test_a_directory_in_place_of_the_side_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "shop.db-sqlqueue-locks").mkdir()
    with pytest.raises(SchemaError, match="Is a directory"):
        locks_of(tmp_path / "shop.db").try_lock("a")


def test_the_side_file_is_opened_once_the_obstacle_is_gone(tmp_path: Path) -> None:
    locks = locks_of(tmp_path / "later" / "shop.db")
    with pytest.raises(SchemaError):
        locks.open()
    (tmp_path / "later").mkdir()
    assert locks.try_lock("a")
    locks.close()


def test_a_file_system_without_locks_is_named_and_the_file_closed(path: Path) -> None:
    with pytest.raises(OSError, match=re.escape(f"'{path}-sqlqueue-locks'")) as raised:
        FileLocks(Location.file(str(path)), method=WithoutLocks()).open()
    assert (raised.value.errno, open_files(path)) == (errno.ENOLCK, [])


@only_linux
def test_a_kernel_that_cannot_lock_is_found_at_the_start() -> None:
    path = os.open("/", os.O_PATH)
    try:
        for method in (ByteRanges(), WholeFile()):
            with pytest.raises(OSError, match="Bad file descriptor"):
                method.begin(path)
    finally:
        os.close(path)


@only_linux
def test_a_lock_that_the_kernel_refuses_otherwise_is_neither_held_nor_free(path: Path) -> None:
    locks = locks_of(path)
    locks.open()
    with unusable(locks), pytest.raises(OSError, match=re.escape(f"Bad file descriptor: '{path}-sqlqueue-locks'")):
        locks.try_lock("a")
    assert locks.try_lock("a")
    locks.close()


@only_linux
def test_a_key_that_the_kernel_does_not_unlock_stays_locked(path: Path) -> None:
    locks = locks_of(path)
    assert locks.try_lock("a")
    with unusable(locks), pytest.raises(OSError, match=re.escape(f"Bad file descriptor: '{path}-sqlqueue-locks'")):
        locks.unlock("a")
    assert not locks.try_lock("a")
    assert locks.unlock("a")
    locks.close()
