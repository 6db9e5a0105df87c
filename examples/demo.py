"""Two instances of invoices.py work off one table that plain_sql.py fills: `make demo`.

On a SQLite file in a temporary directory, or with `--url postgresql://…` in a schema of its own in that database; both
are removed afterwards. Exits with 1 unless each invoice was rendered once, and a single new one within a quarter of a
second.
"""

import argparse
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlencode

HERE = Path(__file__).parent
NUMBERS = [f"A-{number}" for number in range(1, 21)]
LATE = "A-21"
LIMIT = 30.0  # seconds for any of the steps
PROMPT = 0.25  # seconds until the one late invoice is being rendered

Line = tuple[float, str]


class Workers:
    """Instances of invoices.py; what they print is printed here as well, with the time at which it came."""

    def __init__(self, url: str, instances: int) -> None:
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._seen: list[Line] = []
        self._processes: list[subprocess.Popen[str]] = []
        self._readers: list[threading.Thread] = []
        try:
            for _ in range(instances):
                self._start(url)
        except BaseException:
            self.stop()
            raise

    def _start(self, url: str) -> None:
        # A session of its own: Ctrl-C comes to this program alone, which then stops the workers.
        process = subprocess.Popen(
            [sys.executable, str(HERE / "invoices.py"), "--url", url],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        reader = threading.Thread(target=self._read, args=(process,), daemon=True)
        self._readers.append(reader)
        reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self._lines.put((time.monotonic(), line.rstrip()))
        self._lines.put((time.monotonic(), f"worker {process.pid} ended"))

    def wait_for(self, what: str, count: int) -> list[Line]:
        """Print lines until `count` of all that were ever printed hold `what`; those lines."""
        deadline = time.monotonic() + LIMIT
        while len(found := [line for line in self._seen if what in line[1]]) < count:
            try:
                self._show(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise SystemExit(f"only {len(found)} of {count} lines with {what!r} within {LIMIT:.0f} s") from None
            if any(process.poll() for process in self._processes):
                raise SystemExit("a worker failed")
        return found

    def _show(self, line: Line) -> None:
        self._seen.append(line)
        print(line[1], flush=True)

    def stop(self) -> list[int]:
        """Ask all to stop, end those that do not; print the rest of what they said. Their exit codes."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # whoever is impatient now would leave them running
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
        for reader in self._readers:
            reader.join()
        while not self._lines.empty():
            self._show(self._lines.get())
        return [process.wait() for process in self._processes]

    def rendered(self) -> list[tuple[str, str]]:
        """Who rendered which invoice, as often as it was said."""
        matches = (re.fullmatch(r"(worker \d+) rendering (\S+)", text) for _, text in self._seen)
        return [(match[1], match[2]) for match in matches if match]


def write(url: str, *numbers: str) -> float:
    """Run the third program; when it began to commit."""
    command = [sys.executable, str(HERE / "plain_sql.py"), url, *numbers]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT).stdout
    print(f"plain_sql.py {said.partition(' at ')[0]}", flush=True)
    return float(said.rpartition(" ")[2])


def demonstrate(url: str) -> bool:
    """Show it; whether all went as it should."""
    workers = Workers(url, instances=2)
    try:
        workers.wait_for(" consuming ", count=2)
        write(url, *NUMBERS)
        workers.wait_for(" rendering ", count=len(NUMBERS))
        committing = write(url, LATE)
        picked_up = workers.wait_for(f" rendering {LATE}", count=1)[0][0] - committing
    finally:
        codes = workers.stop()
    return tally(workers.rendered(), picked_up) and codes == [0, 0]


def tally(rendered: list[tuple[str, str]], picked_up: float) -> bool:
    """Print the sums; whether they are right."""
    times = Counter(number for _, number in rendered)
    wrong = {number: times[number] for number in {*NUMBERS, LATE, *times} if times[number] != 1}
    shares = ", ".join(f"{worker} {count}" for worker, count in sorted(Counter(w for w, _ in rendered).items()))
    print(f"\ntally: {len(rendered)} renderings of {len(times)} invoices ({shares})")
    print(f"not once: {wrong}" if wrong else "each exactly once")
    prompt = picked_up < PROMPT
    verdict = "" if prompt else f": too late, it should be under {PROMPT} s"
    print(f"{LATE} from the other program was picked up in {picked_up:.3f} s, with a poll interval of 60 s{verdict}")
    return prompt and not wrong


@contextmanager
def sqlite_file() -> Iterator[str]:
    """The URL of a file in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="sqlqueue-demo-") as directory:
        yield f"sqlite:///{quote(directory)}/invoices.db"


@contextmanager
def postgres_schema(url: str) -> Iterator[str]:
    """The URL of a new schema in the database, dropped afterwards."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict

    name = f"sqlqueue_demo_{os.getpid()}"
    schema = sql.Identifier(name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        try:
            parameters = {key: str(value) for key, value in conninfo_to_dict(url).items()}
            parameters["options"] = f"{parameters.get('options', '')} -csearch_path={name}"
            yield f"postgresql://?{urlencode(parameters, quote_via=quote)}"
        finally:
            admin.execute("SET client_min_messages = warning")
            admin.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))


def main() -> None:
    arguments = argparse.ArgumentParser(description="Two processes work off one table of invoices.")
    arguments.add_argument("--url", help="a PostgreSQL database (default: a temporary SQLite file)")
    url = arguments.parse_args().url
    if url is not None and not url.startswith(("postgresql://", "postgres://")):
        arguments.error(f"--url {url}: give postgresql://…, or leave it out for SQLite")
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a script's background job ignores it otherwise
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that all is cleaned up
    with sqlite_file() if url is None else postgres_schema(url) as database:
        good = demonstrate(database)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
