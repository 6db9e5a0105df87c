"""The lease as the database keeps it: who holds a row, until when, and who comes too late."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sqlqueue.outcome import ACKNOWLEDGE, RELEASE, Move, Settlement
from sqlqueue.roles import Role
from sqlqueue.testing.clock import START, ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, Holder, OpenBroker, created, shown, stored
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeptJob, RankedJob

LEASE = timedelta(seconds=30)

#: Every way to settle a row.
SETTLEMENTS = [
    pytest.param(ACKNOWLEDGE, id="ack"),
    pytest.param(Settlement(Move.RETRY), id="retry"),
    pytest.param(Settlement(Move.PARK, error="broken"), id="park"),
    pytest.param(RELEASE, id="release"),
]

#: Where a move takes a row that is in work in its first delivery: what it shows then (moments as seconds after the
#: move), and the attempt in which it can be claimed a second later, None where it cannot.
MOVES = [
    pytest.param(ACKNOWLEDGE, {"attempt": 1, "done_at": 0}, None, id="done"),
    pytest.param(Settlement(Move.RETRY), {"attempt": 1, "due_at": 1e-6}, 2, id="due"),
    pytest.param(Settlement(Move.RETRY, due=START + LEASE), {"attempt": 1, "due_at": 30}, None, id="hidden"),
    pytest.param(Settlement(Move.PARK, error="broken"), {"attempt": 1, "error": "broken"}, None, id="parked"),
    pytest.param(RELEASE, {"attempt": 0}, 1, id="given back"),
]


class TokensContract(Contract):
    """The expiry that a claim writes is the token of ownership: every write to a claimed row is fenced by it."""

    def test_a_claim_writes_its_expiry_counts_the_attempt_and_commits(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """SUITE 19"""
        queue = created(open_broker(), CountedJob, clock)
        queue.enqueue(1)
        (claim,) = Holder(queue).claim()
        assert (clock.now() + LEASE, 1) == (claim.expires, claim.attempt)
        assert [(clock.now() + LEASE, 1)] == shown(database, queue, "locked_until", "attempt")

    def test_two_claimers_never_hold_one_row_at_the_same_time(
        self, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """SUITE 1"""
        queue, other = created(open_broker(), Job, clock), created(open_broker(), Job, clock)
        queue.enqueue_many(range(5))
        first, second = Holder(queue).claim(3), Holder(other).claim(3)
        assert (len(first), len(second)) == (3, 2)
        assert len({claim.id for claim in [*first, *second]}) == 5
        assert list(Holder(queue).claim()) == []

    def test_due_rows_ended_leases_and_the_new_expiry_start_from_one_instant(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """SUITE 22: a row is due, and a lease is over, at its very moment and not before."""
        queue = created(open_broker(), CountedJob, clock)
        precision = timedelta(seconds=queue.broker.dialect.capabilities.time_precision)
        now = clock.now()
        due, ahead = queue.enqueue("due", at=now), queue.enqueue("ahead", at=now + precision)
        ended, held = queue.enqueue("ended"), queue.enqueue("held")
        update = "UPDATE counted_jobs SET locked_until = ? WHERE id = ?"
        database.execute(update, stored(queue, Role.LEASE, now), ended)
        database.execute(update, stored(queue, Role.LEASE, now + precision), held)
        holder = Holder(queue)
        assert [(ended, now + LEASE), (due, now + LEASE)] == [
            (claim.id, claim.expires) for claim in holder.claim(now=now)
        ]
        assert {ahead, held} == {claim.id for claim in holder.claim(now=now + precision)}

    @pytest.mark.parametrize(("settlement", "after", "attempt"), MOVES)
    def test_a_settlement_takes_the_row_out_of_work_to_one_place(
        self,
        database: Database,
        open_broker: OpenBroker,
        clock: ManualClock,
        settlement: Settlement,
        after: dict[str, Any],
        attempt: int | None,
    ) -> None:
        queue = created(open_broker(), KeptJob, clock)
        queue.enqueue("x")
        holder = Holder(queue)
        holder.settle((holder.claim()[0], settlement))
        expected = {
            field: clock.now() + timedelta(seconds=value) if field.endswith("_at") else value
            for field, value in after.items()
        }
        fields = ("due_at", "attempt", "done_at", "locked_until", "error")
        assert [tuple(expected.get(field) for field in fields)] == shown(database, queue, *fields)
        clock.advance(1)
        assert ([] if attempt is None else [attempt]) == [claim.attempt for claim in holder.claim()]

    @pytest.mark.parametrize("settlement", SETTLEMENTS)
    def test_a_settlement_by_an_owner_whose_row_was_claimed_by_another_changes_nothing_and_says_lost(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock, settlement: Settlement
    ) -> None:
        """PAINS 2"""
        queue, other = created(open_broker(), KeptJob, clock), created(open_broker(), KeptJob, clock)
        queue.enqueue("x")
        late, owner = Holder(queue), Holder(other)
        (claim,) = late.claim()
        clock.advance(LEASE)
        (taken,) = owner.claim()
        fields = ("due_at", "attempt", "done_at", "locked_until", "payload", "error")
        before = shown(database, queue, *fields)
        turned = late.settle((claim, settlement))
        assert ([claim], []) == (list(turned.lost), list(turned.gone))
        assert before == shown(database, queue, *fields)
        assert list(owner.settle((taken, ACKNOWLEDGE)).lost) == []

    def test_an_extension_by_an_owner_whose_row_was_claimed_by_another_changes_nothing_and_says_lost(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """PAINS 2"""
        queue, other = created(open_broker(), Job, clock), created(open_broker(), Job, clock)
        queue.enqueue("x")
        late, owner = Holder(queue), Holder(other)
        (claim,) = late.claim()
        clock.advance(LEASE)
        (taken,) = owner.claim()
        clock.advance(1)
        assert [claim] == list(late.extend(claim))
        assert [(taken.expires,)] == shown(database, queue, "locked_until")

    def test_a_late_settlement_takes_effect_while_nobody_else_has_claimed_the_row(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        queue = created(open_broker(), Job, clock)
        queue.enqueue("x")
        holder = Holder(queue)
        (claim,) = holder.claim()
        clock.advance(LEASE * 2)
        turned = holder.settle((claim, ACKNOWLEDGE))
        assert (list(turned.lost), list(turned.gone)) == ([], [])
        assert shown(database, queue, "id") == []

    def test_an_extension_moves_the_token_forward_and_the_old_one_settles_nothing(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        queue = created(open_broker(), Job, clock)
        queue.enqueue("x")
        holder = Holder(queue)
        (claim,) = holder.claim()
        old = attrs.evolve(claim)
        now = clock.advance(10)
        assert list(holder.extend(claim)) == []
        assert now + LEASE == claim.expires
        assert [(now + LEASE,)] == shown(database, queue, "locked_until")
        assert [old] == list(holder.settle((old, ACKNOWLEDGE)).lost)
        assert list(holder.settle((claim, ACKNOWLEDGE)).lost) == []
        assert shown(database, queue, "id") == []

    def test_one_lost_row_leaves_the_settlements_and_extensions_of_the_others_alone(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """PAINS 2, among others in one turn."""
        queue = created(open_broker(), Job, clock)
        queue.enqueue_many(range(4))
        holder = Holder(queue)
        first, lost, third, kept = holder.claim()
        database.execute("UPDATE jobs SET locked_until = NULL WHERE id = ?", lost.id)
        assert [lost] == list(holder.extend(first, lost, third, kept))
        turned = holder.settle((first, ACKNOWLEDGE), (lost, ACKNOWLEDGE), (third, ACKNOWLEDGE))
        assert ([lost], []) == (list(turned.lost), list(turned.gone))
        assert [(lost.id,), (kept.id,)] == shown(database, queue, "id")

    @pytest.mark.parametrize("settlement", SETTLEMENTS)
    def test_the_settlement_of_a_row_that_is_not_there_any_more_says_gone_and_not_lost(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock, settlement: Settlement
    ) -> None:
        """SUITE 102"""
        queue = created(open_broker(), KeptJob, clock)
        queue.enqueue_many(["x", "y"])
        holder = Holder(queue)
        claim, other = holder.claim()
        database.execute("DELETE FROM kept_jobs WHERE id = ?", claim.id)
        turned = holder.settle((claim, settlement), (other, settlement))
        assert ([], [claim]) == (list(turned.lost), list(turned.gone))

    def test_a_release_gives_the_row_back_at_once_and_its_attempt_too(
        self, database: Database, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """SUITE 26"""
        queue = created(open_broker(), FullJob, clock, group="mail")
        queue.enqueue("x")
        holder = Holder(queue)
        holder.settle((holder.claim()[0], RELEASE))
        assert shown(database, queue, "locked_until", "attempt", "is_running") == [(None, 0, False)]
        assert [claim.attempt for claim in holder.claim()] == [1]

    def test_a_row_that_must_wait_is_given_back_hidden_until_then_with_its_attempt_and_its_place(
        self, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        queue = created(open_broker(), CountedJob, clock)
        first, second = queue.enqueue("x"), queue.enqueue("y")
        holder = Holder(queue)
        (claim,) = holder.claim(1)
        holder.settle((claim, Settlement(Move.RELEASE, due=clock.now() + timedelta(seconds=5))))
        assert [second] == [claim.id for claim in holder.claim(1)]
        clock.advance(5)
        assert [(first, 1)] == [(claim.id, claim.attempt) for claim in holder.claim()]

    def test_a_row_retried_at_once_stands_behind_those_that_its_own_turn_claims(
        self, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        """PAINS 19: a row that keeps asking starves nobody."""
        queue = created(open_broker(), RankedJob, clock)
        first, second = queue.enqueue("x"), queue.enqueue("y")
        holder = Holder(queue)
        (claim,) = holder.claim(1)
        turned = holder.turn([(claim, Settlement(Move.RETRY))], 1)
        assert (first, [second]) == (claim.id, [one.id for one in turned.claims])

    def test_a_claim_takes_no_more_than_its_limit_and_none_of_another_group(
        self, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        broker = open_broker()
        mail, bills = created(broker, FullJob, group="mail"), broker.queue(FullJob, "bills")
        bills.enqueue_many(["b"] * 3)
        ids = [mail.enqueue("m") for _ in range(5)]
        holder = Holder(mail)
        assert [ids[:2], ids[2:]] == [[claim.id for claim in holder.claim(limit)] for limit in (2, 10)]
        assert list(holder.claim()) == []

    def test_a_look_ahead_tells_when_the_next_hidden_row_of_the_queue_falls_due(
        self, open_broker: OpenBroker, clock: ManualClock
    ) -> None:
        broker = open_broker()
        mail = created(broker, FullJob, clock, group="mail")
        bills = Holder(broker.queue(mail.spec, "bills"))
        unseen = not broker.dialect.capabilities.watches  # then there may always be more
        for _ in range(2):
            ahead = bills.look_ahead()
            assert (ahead.due, ahead.hidden, ahead.skipped) == (None, unseen, False)
            mail.enqueue("later", delay=60)
            mail.enqueue("sooner", delay=5)
        ahead = Holder(mail).look_ahead()
        assert (clock.now() + timedelta(seconds=5), True, False) == (ahead.due, ahead.hidden, ahead.skipped)
