"""Where a claim begins: at the start, in a backlog, and behind rows that are due again at once."""

from datetime import datetime, timedelta, timezone

from sqlqueue.strategies.scan import BACKLOG, BETWEEN_SWEEPS, SWEEP_AFTER, SWEEP_CLAIMS, ResumePoint

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


def claim(resume: ResumePoint, first: int, *, full: bool = True, now: datetime = NOW) -> bool:
    """Claim as the strategy does; whether it began at the start."""
    swept = resume.position(now) is None
    resume.claimed((None, first), full=full, swept=swept, now=now)
    return swept


def in_backlog() -> ResumePoint:
    resume = ResumePoint()
    for number in range(BACKLOG):
        assert claim(resume, number)
    return resume


def test_a_claim_begins_at_the_start_until_there_is_a_backlog() -> None:
    resume = in_backlog()
    assert resume.position(NOW) == (None, BACKLOG - 1)


def test_a_short_claim_ends_the_backlog() -> None:
    resume = in_backlog()
    assert not claim(resume, 100, full=False)
    assert resume.position(NOW) is None


def test_a_claim_a_second_begins_at_the_start() -> None:
    resume = in_backlog()
    later = NOW + SWEEP_AFTER
    assert resume.position(later - timedelta(microseconds=1)) is not None
    assert claim(resume, 100, now=later)
    assert resume.position(later) == (None, 100)


def test_a_clock_that_was_set_back_brings_a_claim_from_the_start() -> None:
    assert in_backlog().position(NOW - timedelta(hours=1)) is None


def test_one_of_many_claims_begins_at_the_start_though_the_clock_stands_still() -> None:
    resume = in_backlog()
    assert [claim(resume, number) for number in range(SWEEP_CLAIMS + 1)] == [False] * SWEEP_CLAIMS + [True]


def test_where_no_dead_rows_stay_a_backlog_is_claimed_from_the_start() -> None:
    resume = ResumePoint(backlog=False)
    assert all(claim(resume, number) for number in range(2 * BACKLOG))


def test_the_rows_behind_the_furthest_that_is_due_again_come_first() -> None:
    resume = ResumePoint(backlog=False)
    claim(resume, 1)
    resume.put_behind((None, 3))
    resume.put_behind((None, 2))
    assert resume.position(NOW) == (None, 3)


def test_at_the_end_of_the_queue_the_rows_passed_over_are_claimed_again() -> None:
    resume = ResumePoint(backlog=False)
    claim(resume, 1)
    resume.put_behind((None, 3))
    resume.at_end()
    assert resume.position(NOW) is None


def test_slow_handlers_pass_rows_over_for_several_claims_although_each_takes_a_second() -> None:
    resume = ResumePoint(backlog=False)
    claim(resume, 1)
    began_at_the_start = []
    for number in range(1, 2 * (BETWEEN_SWEEPS + 1) + 1):
        resume.put_behind((None, 3))
        began_at_the_start.append(claim(resume, 4, now=NOW + number * SWEEP_AFTER))
    assert began_at_the_start == ([False] * BETWEEN_SWEEPS + [True]) * 2
