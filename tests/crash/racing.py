"""Two processes work rows off together, while they are killed and replaced: what became of each row, and when.

By hand, with as many rows as one likes, on a database that has no table `jobs`:
`python -m tests.crash.racing URL STRATEGY --rows 20000 --kill-every 1`
"""

import argparse
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic

import attrs

from sqlqueue import Broker
from tests.consumer.tables import jobs_by
from tests.support.children import Child, child

RACER = "tests.crash.programs.racer"
WORKERS = 8
LIMIT = 120.0  # seconds that all rows may take


@attrs.frozen
class Handled:
    """A row in a process's hands: from its handler's begin to its end, or to the process's."""

    row: int
    process: int
    begun: float
    ended: float
    finished: bool


@attrs.frozen
class Race:
    """What happened. `acknowledged`: rows whose settlement took effect; `said`: what was worth a warning."""

    seconds: float
    kills: int
    handled: Sequence[Handled]
    left: int
    said: Sequence[str]

    @property
    def times(self) -> Counter[int]:
        """How often each row's handler was begun."""
        return Counter(one.row for one in self.handled)

    @property
    def processes(self) -> set[int]:
        return {one.process for one in self.handled}

    @property
    def overlaps(self) -> list[tuple[Handled, Handled]]:
        """The pairs that had one row at the same time."""
        in_order = sorted(self.handled, key=lambda one: (one.row, one.begun))
        return [pair for pair in _overlapping(in_order) if pair[0].row == pair[1].row]

    @property
    def side_by_side(self) -> list[tuple[Handled, Handled]]:
        """The pairs that were in work at the same time, whatever their rows."""
        return _overlapping(sorted(self.handled, key=lambda one: one.begun))


def _overlapping(handled: Sequence[Handled]) -> list[tuple[Handled, Handled]]:
    """Neighbours of which the later began before the earlier ended."""
    return [(one, other) for one, other in pairwise(handled) if other.begun < one.ended]


@attrs.define
class _Notes:
    """What the handlers noted in a file, which a killed process's writes reach as well."""

    path: Path
    killed: dict[int, float] = attrs.field(factory=dict)

    def handled(self) -> Iterator[Handled]:
        begun: dict[tuple[int, int], float] = {}
        for line in self.path.read_text().splitlines():
            word, process, row, at = line.split()
            work = int(row), int(process)
            if word == "begin":
                begun[work] = float(at)
            else:
                yield Handled(*work, begun.pop(work), float(at), finished=True)
        for (row_id, pid), at_ in begun.items():
            yield Handled(row_id, pid, at_, max(at_, self.killed[pid]), finished=False)


def race(url: str, strategy: str, *, rows: int, work: float, kill_every: float | None = None) -> Race:
    """Have `rows` rows worked off by two processes, each handler taking up to `work` seconds.

    Every `kill_every` seconds one process is killed, and another begins.
    """
    with Broker(url) as broker, TemporaryDirectory() as scratch, ExitStack() as until_end:
        queue = jobs_by(strategy, broker)
        notes = _Notes(Path(scratch) / "notes")
        notes.path.touch()

        def begin(word: str) -> Child:
            racer = until_end.enter_context(
                child(RACER, url, strategy=strategy, workers=WORKERS, work=work, notes=str(notes.path))
            )
            racer.wait_for(word)
            return racer

        racers = [begin("looked"), begin("looked")]
        began, kills = monotonic(), 0
        queue.enqueue_many(range(rows))
        while not _until(lambda: not _left(broker), LIMIT if kill_every is None else kill_every):
            assert monotonic() - began < LIMIT, f"{_left(broker)} rows are left"
            assert kill_every is not None, f"{_left(broker)} rows are left"
            victim = racers.pop(0)
            notes.killed[victim.process.pid] = monotonic()
            victim.signal(signal.SIGKILL)
            assert victim.exit_code() == -signal.SIGKILL
            kills += 1
            racers.append(begin("ready"))
        seconds = monotonic() - began
        for racer in racers:
            racer.stop()
        said = [line for racer in racers for line in racer.lines if line.split()[0] not in ("ready", "looked")]
        return Race(seconds, kills, list(notes.handled()), _left(broker), said)


def _left(broker: Broker) -> int:
    with broker.pool.connection() as connection:
        [(count,)] = connection.driver.execute("SELECT count(*) FROM jobs").fetchall()
    return int(count)


def _until(question: Callable[[], bool], seconds: float) -> bool:
    """Whether it is true within so many seconds."""
    pause, end = Event(), monotonic() + seconds
    while not question():
        if monotonic() >= end:
            return False
        pause.wait(0.05)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("strategy", choices=("lease", "row", "advisory"))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--work", type=float, default=0.0, help="seconds that a handler takes at most")
    parser.add_argument("--kill-every", type=float, help="seconds")
    given = parser.parse_args()
    made = race(given.url, given.strategy, rows=given.rows, work=given.work, kill_every=given.kill_every)
    again = sum(times - 1 for times in made.times.values())
    print(  # noqa: T201 - by hand
        f"{given.strategy}: {len(made.times)} of {given.rows} rows handled in {made.seconds:.1f} s, "
        f"{again} again, {made.kills} kills, {len(made.overlaps)} overlaps, {made.left} left",
        *made.said,
        sep="\n",
    )


if __name__ == "__main__":
    main()
