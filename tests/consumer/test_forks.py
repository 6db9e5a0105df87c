"""A broker made before a fork works on both sides; nothing is shared, and a running consumer stays where it is."""

from tests.support.children import child
from tests.support.database import Database
from tests.support.strategies import EVERY, by_strategy

PROGRAM = "tests.consumer.forking"


@by_strategy(*EVERY)
def test_both_sides_enqueue_and_share_no_connection(database: Database, strategy: str) -> None:
    """PAINS 15"""
    with child(PROGRAM, database.url, strategy=strategy) as program:
        assert program.exit_code() == 0
        assert program.said("child ended") == ["child ended 0", "child ended 0"]
        assert program.said("child same") == ["child same False"]
        assert program.said("parent same") == ["parent same True"]  # its own is as it was
        if database.kind == "postgres":
            first, after = program.said("parent backend")
            assert first == after
            assert program.said("child backend") != [first.replace("parent", "child")]
        assert program.said("child handled") == ["child handled 1 2 3 4 5 6"]
    assert database.execute("SELECT count(*) FROM jobs") == [(0,)]
    if database.kind == "sqlite":
        assert database.execute("PRAGMA integrity_check") == [("ok",)]


@by_strategy(*EVERY)
def test_a_running_consumer_refuses_to_run_in_the_child_and_goes_on_in_the_parent(
    database: Database, strategy: str
) -> None:
    """PAINS 15"""
    with child(PROGRAM, database.url, strategy=strategy, running=True) as program:
        assert program.exit_code() == 0
        refusals = program.said("child ")
        for name in ("start", "stop", "run_until_idle", "run_forever"):
            [line] = [line for line in refusals if line.startswith(f"child {name} ")]
            assert "refused: the consumer was started in process" in line
        assert program.said("child ended") == ["child ended 0"]
        assert program.said("handled") == ["handled 2 3 4 5 6"]
        assert program.said("stopped") == ["stopped Stopped(settled=5, given_back=0, abandoned=0)"]
