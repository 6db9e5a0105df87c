"""Handle, in a transaction: the handler writes where its row is settled, and what it did to that is looked at."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sqlqueue.connection import ENDED
from sqlqueue.consumer.run_handler import RELEASED, Finished, Runner, Work
from sqlqueue.errors import TransactionError
from sqlqueue.outcome import decide, noted
from sqlqueue.strategies.transaction import Transaction, collect_calls, collected_calls, unacknowledged

#: Whoever ended it: SQLite may undo a transaction by itself, such as on a full disk.
STAYS = "its delivery's transaction was committed or rolled back before; what was committed is not undone"


@attrs.define(eq=False)
class Lending:
    """A delivery's transaction, which begins when it is opened. `before`: called first, with the work. `trouble`: why
    it did not begin."""

    transaction: Transaction
    work: Work
    before: Callable[[Work], None] | None
    connection: Any = None
    trouble: Exception | None = None

    def open(self) -> None:
        if self.before is not None:
            self.before(self.work)
        try:
            self.connection = self.transaction.lend()
        except Exception as error:
            self.trouble = error
            raise
        collect_calls(self.connection)
        self.work.delivery.lend(self.connection)

    def end(self) -> tuple[str | None, Sequence[Callable[[], Any]]]:
        """Take the connection back: what the handler did to it that it must not, and what is to be called once its
        writes are committed."""
        self.work.delivery.end()
        calls = collected_calls(self.connection)
        self.connection = None  # whatever refers to it from here on is the handler's
        return self.transaction.take_back(), calls


def run_in(
    transaction: Transaction, work: Work, runner: Runner, before: Callable[[Work], None] | None = None
) -> Finished:
    """Run the handler with its delivery's connection. Where that cannot be lent the row goes back, with `trouble`.

    `before`: called before a transaction begins.
    """
    lending = Lending(transaction, work, before)
    if runner.opens:
        work.delivery.opens_by(lending.open)
    else:
        try:
            lending.open()
        except Exception as error:  # noqa: BLE001 - the database's; it is raised again behind the settlement
            return Finished(work, RELEASED, trouble=error)
    finished = runner.run(work)
    if lending.trouble is not None:
        return Finished(work, RELEASED, trouble=lending.trouble)
    if lending.connection is None:
        work.delivery.end()
        return finished
    problem, calls = lending.end()
    if problem is not None:
        return (_failed if finished.verdict.settlement.keeps else told)(finished, problem, runner)
    if not finished.verdict.settlement.keeps:
        return finished
    return attrs.evolve(finished, then=_all(calls, finished.then)) if calls else finished


def _failed(finished: Finished, problem: str, runner: Runner) -> Finished:
    work = finished.work
    error = unacknowledged(problem)
    runner.tell_failed(work.delivery, error)
    verdict = decide(work.rules or runner.rules, work.delivery.attempt, error, runner.now())
    return attrs.evolve(finished, verdict=verdict)


def told(finished: Finished, problem: str, runner: Runner) -> Finished:
    """The same of a handler that did not return, whose outcome says where the row goes all the same."""
    note = f"beside that, {STAYS if problem == ENDED else problem}"
    runner.tell_failed(finished.work.delivery, TransactionError(note))
    return attrs.evolve(finished, verdict=noted(finished.verdict, note))


def _all(calls: Sequence[Callable[[], Any]], then: Callable[[Finished], None] | None) -> Callable[[Finished], None]:
    def call_all(finished: Finished) -> None:
        for call in calls:
            call()
        if then is not None:
            then(finished)

    return call_all
