"""What a parked row shows of an error: its text with its causes, in a form that every database takes."""

import builtins
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.outcome import ERROR_LENGTH, Rules, describe_error, describe_value, spend, storable
from sqlqueue.retry import NoRetry

RULES = Rules(max_attempts=None, retry=NoRetry(), on_decode_error=NoRetry(), parks=True)


def test_an_errors_text_holds_its_causes_the_newest_first() -> None:
    try:
        try:
            raise KeyError("amount")
        except KeyError as error:
            raise ValueError("no invoice") from error
    except ValueError as error:
        caught = error
    assert describe_error(caught) == "ValueError: no invoice\ncaused by: KeyError: 'amount'"


def test_an_error_while_another_was_handled_shows_both_unless_that_was_hidden() -> None:
    def fail(hide: bool) -> Exception:
        try:
            try:
                raise KeyError("a")
            except KeyError:
                if hide:
                    raise ValueError("b") from None
                raise ValueError("b")  # noqa: B904 - the context is the point
        except ValueError as error:
            return error

    assert describe_error(fail(hide=False)) == "ValueError: b\ncaused by: KeyError: 'a'"
    assert describe_error(fail(hide=True)) == "ValueError: b"


def test_causes_that_go_round_are_told_once() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert describe_error(one) == "ValueError: one\ncaused by: ValueError: two"


def test_an_errors_text_is_bounded_and_spells_out_what_no_database_takes() -> None:
    assert describe_error(ValueError("a\0b")) == "ValueError: a\\0b"
    assert describe_error(OSError("no such file: \udcff.txt")) == "OSError: no such file: \\udcff.txt"
    assert len(describe_error(ValueError("\0" * 2 * ERROR_LENGTH))) <= ERROR_LENGTH


def test_an_error_that_cannot_be_printed_is_still_told() -> None:
    class Odd(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError

    assert "Odd" in describe_error(Odd())


@given(st.text() | st.just("x" * 2 * ERROR_LENGTH))
def test_a_reason_of_the_handlers_own_is_stored_by_the_same_rules(reason: str) -> None:
    error = spend(RULES, reason).settlement.error
    assert error is not None
    assert "\0" not in error
    assert len(error) <= ERROR_LENGTH
    error.encode()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="it has no groups")
def test_a_group_of_errors_shows_its_first_members() -> None:
    group = getattr(builtins, "ExceptionGroup")  # noqa: B009 - Python 3.10 has none
    inner = group("inner", [KeyError("two")])
    assert describe_error(group("many", [ValueError("one"), inner])) == (
        "ExceptionGroup: many (2 sub-exceptions)\n"
        "- ValueError: one\n"
        "- ExceptionGroup: inner (1 sub-exception)\n"
        "  - KeyError: 'two'"
    )
    shown = describe_error(group("many", [ValueError(str(number)) for number in range(1000)])).splitlines()
    assert shown[-2:] == ["- ValueError: 9", "- and 990 more"]
    for _ in range(100):
        inner = group("deeper", [inner])
    assert describe_error(inner).count("deeper") == 4


def test_a_value_is_shown_in_short_and_one_that_cannot_be_by_its_class() -> None:
    class Detached:
        def __repr__(self) -> str:
            raise RuntimeError("its session is closed")

    assert describe_value("a" * 500) == "'" + "a" * 199
    assert describe_value([Detached()]) == "<list whose repr fails with RuntimeError>"


def test_a_reason_whose_text_fails_is_told_by_its_type() -> None:
    """As what is parked, too: it must not stop who settles the row."""

    class Wordless:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert storable(Wordless()).endswith("Wordless whose str fails with RuntimeError>")
