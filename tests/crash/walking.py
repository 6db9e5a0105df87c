"""Two processes walk tasks through their steps, while they are killed and replaced: what each step did, and how often.

By hand, with as many tasks as one likes, on a database that has no tables `pg_task` and `effects`:
`python -m tests.crash.walking URL KIND --tasks 200 --kill-every 0.3`
"""

import argparse
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic

import attrs

from sqlqueue import Broker
from tests.crash.walks import KINDS, LEFT, WRITTEN, ask, by_task, enqueue, make_tables, traced
from tests.support.children import Child, child

WORKER = "tests.crash.programs.step_worker"
PROCESSES, WORKERS = 2, 4
LIMIT = 120.0  # seconds that all tasks may take
LEASE = 0.5  # after which another goes on with a killed one's step
LONG_LEASE = 30.0  # which nobody who lives lets end


@attrs.frozen
class Walked:
    """What happened: the numbers of the steps that began, and of those that wrote, by task and in their order.

    `processes`: how many of them began steps; `left`: tasks that are left; `said`: what was worth a warning.
    """

    seconds: float
    kills: int
    processes: int
    begun: Mapping[str, Sequence[int]]
    written: Mapping[str, Sequence[int]]
    left: int
    said: Sequence[str]

    @property
    def again(self) -> int:
        """How many steps were begun again."""
        return sum(len(numbers) - len(set(numbers)) for numbers in self.begun.values())

    @property
    def backwards(self) -> int:
        """How often a step began after one that comes later."""
        return sum(earlier > later for numbers in self.begun.values() for earlier, later in pairwise(numbers))


def firsts(numbers: Sequence[int]) -> list[int]:
    """The steps in the order in which each first came."""
    return list(dict.fromkeys(numbers))


@contextmanager
def trace_file() -> Iterator[Path]:
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace"
        path.touch()
        yield path


def walk(
    url: str, kind: str, lengths: Sequence[int], *, work: float, kill_every: float | None = None, seed: int = 0
) -> Walked:
    """Have a task of each length worked off, each step taking up to twice `work` seconds.

    About every `kill_every` seconds, as `seed` has it, one of the processes is killed, and another begins; leases are
    short then.
    """
    lease = LONG_LEASE if kill_every is None else LEASE
    lots, kills = Random(seed), 0
    with Broker(url) as broker, trace_file() as path, ExitStack() as until_end:
        walks = make_tables(broker, kind)

        def begin() -> Child:
            made = child(WORKER, url, kind=kind, workers=WORKERS, work=work, trace=str(path), lease=lease)
            return until_end.enter_context(made)

        walkers = [begin() for _ in range(PROCESSES)]
        for walker in walkers:
            walker.wait_for("looked")
        began = monotonic()
        enqueue(walks, kind, lengths)
        while not _until_none_left(broker, LIMIT if kill_every is None else lots.uniform(0, 2 * kill_every)):
            assert kill_every is not None, f"{_left(broker)} tasks are left"
            assert monotonic() - began < LIMIT, f"{_left(broker)} tasks are left"
            victim = walkers.pop(lots.randrange(PROCESSES))
            victim.signal(signal.SIGKILL)
            assert victim.exit_code() == -signal.SIGKILL
            kills += 1
            walkers.append(begin())
            walkers[-1].wait_for("ready")
        seconds = monotonic() - began
        for walker in walkers:
            walker.stop()
        said = [line for walker in walkers for line in walker.lines if line.split()[0] not in ("ready", "looked")]
        begun, written = traced(path), by_task(ask(broker, WRITTEN))
        processes = len({process for _, _, process in begun})
        return Walked(seconds, kills, processes, by_task(begun), written, _left(broker), said)


def _left(broker: Broker) -> int:
    return int(ask(broker, LEFT)[0][0])


def _until_none_left(broker: Broker, seconds: float) -> bool:
    """Whether all tasks are done within so many seconds."""
    pause, end = Event(), monotonic() + seconds
    while _left(broker):
        if monotonic() >= end:
            return False
        pause.wait(0.02)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", type=float, default=0.02, help="seconds before and after what a step does, at most")
    parser.add_argument("--kill-every", type=float, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    lengths = [given.steps] * given.tasks
    made = walk(given.url, given.kind, lengths, work=given.work, kill_every=given.kill_every, seed=given.seed)
    whole = list(range(1, given.steps + 1))
    print(  # noqa: T201 - by hand
        f"{given.kind}: {len(made.begun)} of {given.tasks} tasks in {made.seconds:.1f} s, {made.kills} kills, "
        f"{sum(firsts(numbers) == whole for numbers in made.begun.values())} in order, {made.again} steps again, "
        f"{made.backwards} backwards, {sum(map(len, made.written.values()))} effects written, "
        f"{sum(len(numbers) != len(set(numbers)) for numbers in made.written.values())} tasks with one twice, "
        f"{made.left} left",
        *made.said,
        sep="\n",
    )


if __name__ == "__main__":
    main()
