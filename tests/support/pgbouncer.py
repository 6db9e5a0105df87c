"""PgBouncer, the real one, where it is installed."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from psycopg.conninfo import conninfo_to_dict

from tests.support.availability import PGBOUNCER, pgbouncer
from tests.support.postgres import url_of
from tests.support.proxy import proxy

LIMIT = 10.0  # seconds

CONFIG = """
[databases]
{dbname} = host=127.0.0.1 port={target} {login} connect_query='{query}'

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
ignore_startup_parameters = extra_float_digits, options
"""


@contextmanager
def running_pgbouncer(url: str, scratch: Path, **settings: str) -> Iterator[str]:
    """PgBouncer with these settings: a URL by way of it. It ignores the URL's `options`, so its servers set them."""
    target = conninfo_to_dict(url)
    query = "SET search_path TO " + str(target.get("options") or "").rpartition("=")[2]
    port = free_port()
    with proxy(url) as way:  # the server may have but a socket that PgBouncer's user cannot reach
        facts = {
            "dbname": target["dbname"],
            "login": " ".join(f"{name}='{target[name]}'" for name in ("user", "password") if target.get(name)),
            "target": conninfo_to_dict(way.url)["port"],
            "port": str(port),
            "query": query,
        }
        config = scratch / "pgbouncer.ini"
        lines = [f"{name} = {value}" for name, value in settings.items()]
        config.write_text(CONFIG.format(**facts) + "\n".join(lines) + "\n")
        with _running([str(pgbouncer()), *_unprivileged(), str(config)], port, scratch / "log"):
            yield url_of(url, host="127.0.0.1", port=str(facts["port"]), sslmode="disable")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as door:
        return int(door.getsockname()[1])


def _unprivileged() -> list[str]:
    return [] if os.getuid() else ["--user", "nobody"]  # it refuses to run as root


@contextmanager
def _running(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("w") as lines:
        process = subprocess.Popen(command, stderr=lines)
    try:
        assert _listens(process, port), f"{PGBOUNCER} does not listen: {log.read_text()}"
        yield
    finally:
        process.terminate()
        process.wait(LIMIT)


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    """Wait until it does, which nobody tells us of."""
    pause, end = threading.Event(), monotonic() + LIMIT
    while process.poll() is None and monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), LIMIT).close()
        except ConnectionRefusedError:
            pause.wait(0.01)
        else:
            return True
    return False
