"""Who has had the write lock for long leaves other processes, which have no part in that lock, a chance."""

from time import monotonic

import pytest

from sqlqueue_sqlite import connection
from sqlqueue_sqlite.connection import LONGEST_PAUSE, PAUSE_FOR_OTHERS, WriterLock


def pass_through(made: WriterLock, *, lent: bool) -> None:
    assert made.acquire(1.0)
    if lent:
        made.lend()
        made.take_back()
    made.release()


def seconds_at(made: WriterLock) -> float:
    began = monotonic()
    pass_through(made, lent=False)
    return monotonic() - began


def test_after_a_handlers_long_transaction_whoever_waits_elsewhere_looks_once_before_we_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else transactions that follow each other would keep other processes from extending their leases."""
    monkeypatch.setattr(connection, "LONG_TRANSACTION", 0.0)
    made = WriterLock()
    pass_through(made, lent=True)
    assert seconds_at(made) >= 0.9 * PAUSE_FOR_OTHERS > LONGEST_PAUSE


def test_nobody_waits_after_short_transactions_nor_after_those_without_a_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = WriterLock()
    pass_through(made, lent=True)
    assert made._others_until == 0.0
    monkeypatch.setattr(connection, "LONG_TRANSACTION", 0.0)
    pass_through(made, lent=False)
    assert made._others_until == 0.0
