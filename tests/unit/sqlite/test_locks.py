"""Locks on keys within one process: threads of one object, and objects on one file."""

import os
import re
import stat
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sqlqueue.errors import Unsupported
from sqlqueue_sqlite import locks as module
from sqlqueue_sqlite.database import Location
from sqlqueue_sqlite.locks import OFFSETS, ByteRanges, FileLocks, LockMethod, WholeFile, method_of_platform
from sqlqueue_sqlite.trouble import PoolClosedError
from tests.support.leftovers import open_files

MakeLocks = Callable[..., FileLocks]


@pytest.fixture
def make_locks(path: Path) -> Iterator[MakeLocks]:
    with ExitStack() as until_end:

        def make(location: Location | None = None, method: LockMethod | None = None) -> FileLocks:
            locks = FileLocks(location or Location.file(str(path)), method=method)
            until_end.callback(locks.close)
            return locks

        yield make


@pytest.fixture(params=["file", "memory"])
def locks(request: pytest.FixtureRequest, make_locks: MakeLocks) -> FileLocks:
    """Of a database in a file, and of one in memory."""
    return make_locks(Location.in_memory() if request.param == "memory" else None)


def side_file(path: Path) -> Path:
    return path.with_name(f"{path.name}-sqlqueue-locks")


def test_a_key_is_locked_once(locks: FileLocks) -> None:
    assert locks.try_lock("a")
    assert not locks.try_lock("a")
    assert locks.try_lock("b")
    assert locks.unlock("a")
    assert locks.try_lock("a")


def test_what_is_not_held_is_not_unlocked(locks: FileLocks) -> None:
    assert not locks.unlock("a")
    assert locks.try_lock("a")
    assert locks.unlock("a")
    assert not locks.unlock("a")


@pytest.mark.parametrize("key", ["", "jobs-1", "ключ", "\0", "\ud800", "long" * 10_000])
def test_any_text_is_a_key(locks: FileLocks, key: str) -> None:
    assert locks.try_lock(key)
    assert not locks.try_lock(key)
    assert locks.unlock(key)


def test_two_keys_with_one_hash_wait_for_each_other(locks: FileLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_offset_of", lambda key: 7)
    assert locks.try_lock("a")
    assert not locks.try_lock("b")
    assert not locks.unlock("b")
    assert not locks.try_lock("b")
    assert locks.unlock("a")
    assert locks.try_lock("b")


@pytest.mark.parametrize("offset", [0, 1, OFFSETS - 1])
def test_every_offset_can_be_locked(make_locks: MakeLocks, monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    monkeypatch.setattr(module, "_offset_of", lambda key: offset)
    one, other = make_locks(), make_locks()
    assert one.try_lock("a")
    assert not other.try_lock("a")
    assert one.unlock("a")
    assert other.try_lock("a")


def test_neighbours_are_unlocked_apart(make_locks: MakeLocks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel joins neighbouring ranges of one holder, and parts them again."""
    monkeypatch.setattr(module, "_offset_of", int)
    one, other = make_locks(), make_locks()
    assert [one.try_lock(key) for key in "123"] == [True] * 3
    assert one.unlock("2")
    assert [other.try_lock(key) for key in "123"] == [False, True, False]


def test_the_offset_of_a_key_is_the_same_in_every_process_and_release() -> None:
    """Other processes of the host may run an older sqlqueue."""
    assert module._offset_of("jobs-1") == 2432681396638496043


def test_threads_of_one_object_exclude_each_other(locks: FileLocks) -> None:
    inside: Counter[str] = Counter()
    most, start = [0], threading.Barrier(4)

    def run() -> None:
        start.wait(10)
        done = 0
        while done < 200:
            if locks.try_lock("a"):
                inside["a"] += 1
                most[0] = max(most[0], inside["a"])
                inside["a"] -= 1
                done += locks.unlock("a")

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert (most, inside["a"]) == ([1], 0)


def test_two_objects_of_one_process_exclude_each_other(make_locks: MakeLocks) -> None:
    one, other = make_locks(), make_locks()
    assert one.try_lock("a")
    assert not other.try_lock("a")
    assert not other.unlock("a")
    assert not other.try_lock("a")
    assert one.unlock("a")
    assert other.try_lock("a")


def test_a_link_to_the_database_leads_to_the_same_locks(make_locks: MakeLocks, path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    one, other = make_locks(), make_locks(Location.file(str(link)))
    assert one.try_lock("a")
    assert not other.try_lock("a")


def test_a_location_that_must_exist_has_the_same_locks(path: Path) -> None:
    location = Location.file(str(path))
    assert location.existing().side_file == location.side_file == os.path.realpath(side_file(path))


def test_databases_do_not_share_locks(make_locks: MakeLocks, tmp_path: Path) -> None:
    one, other = make_locks(), make_locks(Location.file(str(tmp_path / "other.db")))
    assert one.try_lock("a")
    assert other.try_lock("a")


def test_databases_in_memory_have_no_file_and_share_nothing(
    make_locks: MakeLocks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    one, other = make_locks(Location.in_memory()), make_locks(Location.in_memory())
    one.open()
    assert one.try_lock("a")
    assert other.try_lock("a")
    assert set(tmp_path.iterdir()) == before


def test_closing_unlocks_everything_and_may_be_repeated(make_locks: MakeLocks) -> None:
    one, other = make_locks(), make_locks()
    assert [one.try_lock(key) for key in "ab"] == [True, True]
    one.close()
    one.close()
    assert [other.try_lock(key) for key in "ab"] == [True, True]
    assert not one.unlock("a")


def test_closed_locks_are_refused_until_they_are_opened_again(locks: FileLocks) -> None:
    assert locks.try_lock("a")
    locks.close()
    with pytest.raises(PoolClosedError, match=r"the locks of the SQLite database .* were closed"):
        locks.try_lock("a")
    locks.open()
    locks.open()
    assert locks.try_lock("a")


def test_locks_that_nobody_closed_end_with_their_object(make_locks: MakeLocks, path: Path) -> None:
    forgotten = [FileLocks(Location.file(str(path)))]
    assert forgotten[0].try_lock("a")
    with pytest.warns(ResourceWarning, match="unclosed file"):
        forgotten.clear()
    assert make_locks().try_lock("a")


def test_a_platforms_finest_method_is_chosen() -> None:
    assert method_of_platform() == (ByteRanges() if sys.platform == "linux" else WholeFile())


def test_ten_thousand_keys_are_held_at_once(make_locks: MakeLocks) -> None:
    one, other = make_locks(), make_locks()
    keys = [f"jobs-{n}" for n in range(10_000)]
    assert all(one.try_lock(key) for key in keys)
    assert not any(other.try_lock(key) for key in keys[::500])
    one.close()
    assert all(other.try_lock(key) for key in keys[::500])


def test_the_side_file_is_empty_takes_the_umask_and_stays(make_locks: MakeLocks, path: Path) -> None:
    before = os.umask(0o027)
    try:
        locks = make_locks()
        assert locks.try_lock("a")
    finally:
        os.umask(before)
    locks.close()
    found = side_file(path).stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (0, 0o640)


def test_the_side_file_is_not_inherited_by_other_programs(make_locks: MakeLocks) -> None:
    locks = make_locks()
    locks.open()
    assert locks._file is not None
    assert not os.get_inheritable(locks._file.fileno())


def test_opening_again_opens_nothing_and_closing_leaves_nothing(make_locks: MakeLocks, path: Path) -> None:
    locks = make_locks()
    locks.open()
    before = open_files(path)
    locks.open()
    assert open_files(path) == before
    locks.close()
    assert open_files(path) == []


def test_the_whole_file_is_one_objects_alone(make_locks: MakeLocks, path: Path) -> None:
    one, other = make_locks(method=WholeFile()), make_locks(method=WholeFile())
    one.open()
    refusal = f"{re.escape(str(side_file(path)))} for itself.*; run one consumer process .*, or declare a lease column"
    for attempt in (other.open, lambda: other.try_lock("a")):
        with pytest.raises(Unsupported, match=refusal):
            attempt()
    assert open_files(path) in ([str(side_file(path))], [])  # elsewhere nobody tells
    one.close()
    assert other.try_lock("a")


def test_keys_are_locked_once_within_the_whole_file(make_locks: MakeLocks) -> None:
    locks = make_locks(method=WholeFile())
    assert locks.try_lock("a")
    assert not locks.try_lock("a")
    assert locks.try_lock("b")
    assert locks.unlock("a")
    assert locks.try_lock("a")
