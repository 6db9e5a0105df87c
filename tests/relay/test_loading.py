"""Publishers are found by scheme, and no client's library is imported before its scheme is asked for."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from tests.support.availability import BROKERS, installed

LIMIT = 60.0

#: Each scheme's broker.
SCHEMES = {
    "kafka": "kafka",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "nats": "nats",
    "tls": "nats",
    "redis": "redis",
    "rediss": "redis",
}

IMPORTED = """
import sys
import sqlqueue, sqlqueue.relay.targets.loop, sqlqueue.relay.targets.publishing, sqlqueue.relay.targets.address
print(sorted({"redis", "pika", "nats", "confluent_kafka"} & sys.modules.keys()))
"""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_schemes_entry_point_is_its_module(scheme: str) -> None:
    (entry,) = entry_points(group="sqlqueue.publishers", name=scheme)
    assert entry.value == f"sqlqueue.relay.targets.{SCHEMES[scheme]}"
    if installed(BROKERS[SCHEMES[scheme]][0]):
        publisher = entry.load().sqlqueue_publisher(f"{scheme}://host")
        assert publisher.name.startswith(f"{scheme}://host")
        publisher.close()


def test_no_clients_library_comes_with_sqlqueue() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert ran.stdout == "[]\n"
