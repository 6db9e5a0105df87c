"""The example of the outbox, as people run it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.relay.brokers import serving
from tests.support.availability import BROKERS, installed
from tests.support.database import Database

SHOP = Path(__file__).parents[2] / "examples" / "shop.py"
LIMIT = 60.0  # seconds

CUSTOMERS = ("jane", "joe", "ann")

EVENT = re.compile(r'^  (\w+): event (\d+) {"number":"(A-\d+)","customer":"(\w+)","amount":(\d+)}$', re.MULTILINE)


def run(*arguments: str) -> str:
    command = [sys.executable, str(SHOP), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=True).stdout


def test_each_order_is_one_event_in_order_for_each_customer_and_an_empty_cart_is_none(database: Database) -> None:
    said = run("--url", database.url, "--orders", "12")
    assert "12 orders were placed\n12 events were published to memory://bus\n" in said
    told = [(key, int(number.removeprefix("A-"))) for key, _, number, _, _ in EVENT.findall(said)]
    for customer in CUSTOMERS:
        numbers = [number for key, number in told if key == customer]
        assert (len(numbers), numbers) == (4, sorted(numbers))
    assert len({event for _, event, _, _, _ in EVENT.findall(said)}) == 12
    assert database.execute("SELECT count(*) FROM shop_events") == [(0,)]
    assert database.execute("SELECT count(*) FROM shop_orders") == [(12,)]


@pytest.mark.parametrize("name", [name for name, (module, _) in BROKERS.items() if installed(module)])
def test_the_events_go_to_each_broker(name: str) -> None:
    with serving(name) as target:
        assert "12 orders were placed\n12 events were published to " in run("--to", target.url(), "--orders", "12")
        arrived = target.arrived()
    assert len({each.id for each in arrived}) == len(arrived) == 12
    for first, customer in enumerate(CUSTOMERS):
        placed = [json.loads(each.payload)["number"] for each in arrived if each.key == customer]
        assert placed == [f"A-{number}" for number in range(first or 3, 13, 3)]


def test_a_second_run_places_the_same_orders_again_and_sends_nothing(database: Database) -> None:
    run("--url", database.url)
    assert "0 orders were placed\n0 events were published" in run("--url", database.url)


def test_without_options_it_runs_anywhere() -> None:
    assert "6 events were published to memory://bus" in run()


def test_what_was_not_published_is_counted_as_waiting_and_the_run_fails(database: Database) -> None:
    pytest.importorskip("redis")
    command = [sys.executable, str(SHOP), "--url", database.url, "--to"]
    done = subprocess.run([*command, "redis://127.0.0.1:1?stream=x"], capture_output=True, text=True, timeout=LIMIT)
    said = "6 orders were placed\n0 events were published to redis://127.0.0.1:1/0?stream=x\n6 wait to be tried again\n"
    assert (done.stdout, done.returncode) == (said, 1)
    assert database.execute("SELECT count(*) FROM shop_events") == [(6,)]


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:", "sqlite://shop.db"])
def test_a_database_without_a_file_is_refused(url: str) -> None:
    done = subprocess.run([sys.executable, str(SHOP), "--url", url], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 2
    assert "--url needs a file's path, as in sqlite:///shop.db: the shop and its relay each open it" in done.stderr


def test_an_unknown_target_is_told_with_those_that_there_are() -> None:
    command = [sys.executable, str(SHOP), "--to", "smoke://hill"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 1
    assert "nothing installed publishes to the URL scheme 'smoke'; installed are: " in done.stderr
