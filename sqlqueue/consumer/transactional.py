"""Handle, in a transaction: the handler writes where its row is settled, and what it did to that is looked at."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sqlqueue import joining
from sqlqueue.consumer.handlers import RELEASED, Finished, Runner, Work
from sqlqueue.errors import TransactionError
from sqlqueue.settling import decide
from sqlqueue.strategies.transaction import Transaction


def run_in(transaction: Transaction, work: Work, runner: Runner) -> Finished:
    """Run the handler with its delivery's connection. Where that cannot be lent the row goes back, with `trouble`."""
    try:
        connection = transaction.lend()
    except Exception as error:  # noqa: BLE001 - the database's; it is raised again behind the settlement
        return Finished(work, RELEASED, trouble=error)
    joining.begin(connection)
    work.delivery.lend(connection)
    finished = runner.run(work)
    work.delivery.end()
    calls = joining.end(connection)
    del connection  # whatever refers to it from here on is the handler's
    problem = transaction.take_back()
    if not finished.verdict.settlement.keeps:
        return finished
    if problem is not None:
        return _failed(finished, problem, runner)
    return attrs.evolve(finished, then=_all(calls)) if calls else finished


def _failed(finished: Finished, problem: str, runner: Runner) -> Finished:
    delivery = finished.work.delivery
    error = TransactionError(f"the handler returned, but {problem}; nothing was acknowledged")
    runner.tell_failed(delivery, error)
    return attrs.evolve(finished, verdict=decide(runner.rules, delivery.attempt, error, runner.now()))


def _all(calls: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    def call_all() -> None:
        for call in calls:
            call()

    return call_all
