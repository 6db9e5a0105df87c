"""Trouble with the database is logged once when it begins and once when it is over."""

import logging

import pytest

from sqlqueue.consumer.health import Outage
from sqlqueue.dialect import Trouble


def test_an_outage_is_logged_twice_however_often_it_fails(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("jobs")
    assert not outage.lasts
    for attempt in range(5):
        outage.begin(Trouble.LOST, ConnectionError("refused"), 0.1 * attempt)
    assert (outage.lasts, outage.error, outage.failures) == (True, "lost: ConnectionError: refused", 5)
    assert outage.end()
    messages = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert messages[0] == (
        logging.WARNING,
        "queue jobs: the server or the connection is gone (lost: ConnectionError: refused); trying again in 0.0 s, "
        "then less often",
    )
    assert messages[1][1].startswith("queue jobs: works again after 0.0 s and 5 failures")
    assert len(messages) == 2


def test_the_newest_error_is_what_health_shows() -> None:
    outage = Outage("jobs")
    outage.begin(Trouble.LOST, ConnectionError("refused"), 0.1)
    outage.begin(Trouble.PERMANENT, LookupError("no table"), 0.1)
    assert outage.error == "permanent: LookupError: no table"


def test_a_turn_that_goes_through_without_an_outage_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert not Outage("jobs").end()
    assert caplog.records == []


def test_each_outage_counts_and_is_logged_anew(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("jobs")
    for _ in range(2):
        outage.begin(Trouble.TRANSIENT, OSError("reset"), 0.1)
        assert outage.failures == 1
        assert outage.end()
        assert (outage.lasts, outage.error, outage.failures) == (False, None, 0)
    assert len(caplog.records) == 4
