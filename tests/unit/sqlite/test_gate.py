"""Who has had the write lock for long leaves other processes, which have no part in the gate, a turn."""

from time import monotonic

import pytest

from sqlqueue_sqlite import gate
from sqlqueue_sqlite.gate import TURN, Gate
from sqlqueue_sqlite.patience import LONGEST_PAUSE


def pass_through(made: Gate, *, lent: bool) -> None:
    assert made.enter(1.0)
    if lent:
        made.lend()
        made.take_back()
    made.leave()


def seconds_at(made: Gate) -> float:
    began = monotonic()
    pass_through(made, lent=False)
    return monotonic() - began


def test_after_a_handlers_long_transaction_whoever_waits_elsewhere_looks_once_before_we_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else transactions that follow each other would keep other processes from extending their leases."""
    monkeypatch.setattr(gate, "LONG", 0.0)
    made = Gate()
    pass_through(made, lent=True)
    assert seconds_at(made) >= 0.9 * TURN > LONGEST_PAUSE


def test_nobody_waits_after_short_transactions_nor_after_those_without_a_handler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = Gate()
    pass_through(made, lent=True)
    assert made._ours_at == 0.0
    monkeypatch.setattr(gate, "LONG", 0.0)
    pass_through(made, lent=False)
    assert made._ours_at == 0.0
