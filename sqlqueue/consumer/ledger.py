"""What became of the rows in hand: who is settled, who was late, and who goes back. Owned by the pump's thread."""

from collections.abc import Iterable
from datetime import datetime

from sqlqueue.consumer.handlers import Finished, Work
from sqlqueue.consumer.hands import Hands
from sqlqueue.consumer.notices import Notices
from sqlqueue.consumer.report import Report
from sqlqueue.settling import Verdict
from sqlqueue.strategies.base import Move, Settlement, Turned


def released(work: Work, until: datetime | None = None) -> Finished:
    """A row that goes back unhandled, claimable again from `until` (None: at once)."""
    return Finished(work, Verdict(Settlement(Move.RELEASE, due=until), "released"))


class Ledger:
    """Keeps the books of one queue: `unsettled` is what waits for the next turn."""

    def __init__(self, queue: str, hands: Hands, notices: Notices) -> None:
        self._hands = hands
        self.report = Report(queue, notices)
        self.unsettled: list[Finished] = []

    def enter(self, finished: Finished) -> None:
        """A delivery came back from its worker; one that was taken out of hand meanwhile is told that it is late."""
        if finished.work in self._hands.held:
            self.unsettled.append(finished)
        else:
            self.report.late(finished.work)

    def post(self, finished: Iterable[Finished], turned: Turned) -> list[datetime | None]:
        """Take settled rows out of hand; when those that will be tried again fall due (None: at once)."""
        late = {id(claim): "lease_lost" for claim in turned.lost} | {id(claim): "gone" for claim in turned.gone}
        dues: list[datetime | None] = []
        for one in finished:
            reason = late.get(id(one.work.delivery.claim)) if late else None
            if reason == "lease_lost":
                self.lose(one.work)
                continue
            self._out_of_hand(one, reason, dues)
            self.report.settle(one, gone=reason is not None)
        return dues

    def _out_of_hand(self, one: Finished, gone: str | None, dues: list[datetime | None]) -> None:
        settlement = one.verdict.settlement
        if settlement.move is Move.RELEASE:
            self.put_back(self._hands.dropped(one.work))
            if settlement.due is not None:
                dues.append(settlement.due)
            return
        if settlement.move is Move.RETRY and not gone:
            self.put_back(self._hands.retried(one.work, settlement.due))
            dues.append(settlement.due)
            return
        self._hands.settled(one.work)
        if settlement.again and not gone:
            dues.append(settlement.due)

    def put_back(self, works: Iterable[Work], until: datetime | None = None) -> None:
        """These rows go back with the next turn."""
        self.unsettled += [released(work, until) for work in works]

    def give_up(self) -> None:
        """Everything in hand goes back; what its handlers still do comes too late."""
        waiting = {one.work for one in self.unsettled}
        for work in self._hands.held - waiting:
            work.delivery.lose()
            self.unsettled.append(released(work))

    def lose(self, work: Work) -> None:
        """The row belongs to somebody else."""
        work.delivery.lose()
        self.report.late(work)
        self.put_back(self._hands.dropped(work))

    def drop(self, work: Work) -> None:
        """The row could not be settled: its lease ends by itself."""
        self.put_back(self._hands.dropped(work))
