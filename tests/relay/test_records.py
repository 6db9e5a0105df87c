"""A record's id as text, and what a table of records must say."""

import functools
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue import Broker, DeclarationError, Role, column, table
from sqlqueue.relay import MemoryPublisher, Tracking
from sqlqueue.relay.record_table import from_text, to_text
from sqlqueue.spec import ColumnSpec, spec_of
from sqlqueue.testing.contract.tables import Job, KeptJob
from sqlqueue.testing.contract.tracked import Outbox, Sent, message


@pytest.mark.parametrize(
    "id", [0, -1, 2**63 - 1, "A-17", "ü", "", UUID(int=17), b"", b"\x00\xff"], ids=lambda id: to_text(id)
)
def test_an_id_comes_back_from_its_text(id: Any) -> None:
    kind = ColumnSpec(field="id", type=type(id), role=Role.ID)
    assert from_text(kind, to_text(id)) == id


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *[(int, text) for text in ("", "x", " 1", "1 ", "+1", "01", "1_0", "1.0", "\u0661", str(2**63), "9" * 5000)],
        *[(UUID, text) for text in ("", "17", "{00000000-0000-0000-0000-000000000011}", "0" * 32)],
        *[(bytes, text) for text in ("f", "0 0", "xx")],
        *[(str, text) for text in ("a\0", "\ud800")],
    ],
)
def test_what_no_id_was_written_as_is_refused(kind: type, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        from_text(ColumnSpec(field="id", type=kind, role=Role.ID), text)


def without(role: Role) -> Any:
    spec = spec_of(Outbox)
    return attrs.evolve(spec, columns=[one for one in spec.columns if one.role is not role], row_class=None)


def replaced(role: Role, **changes: Any) -> Any:
    spec = spec_of(Outbox)
    columns = [attrs.evolve(one, **changes) if one.role is role else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns, row_class=None)


@table("outbox")
class WithMore:
    id: int = column.id(generated=True)
    name: str = column.group()
    payload: bytes = column.payload()
    customer: str


@pytest.mark.parametrize(
    ("declared", "mend"),
    [
        (without(Role.GROUP), r"no column plays the role 'group'; add name: str = column\.group\(\)"),
        (without(Role.PAYLOAD), r"no column plays the role 'payload'; add payload: bytes"),
        (replaced(Role.PAYLOAD, type=dict), r"must come back as it was sent; declare it as bytes or str"),
        (replaced(Role.PARTITION_KEY, type=int), r"'partition_key' and must come back .* declare it as str"),
        (replaced(Role.ID, type=Any), r"declare the type of its id 'id'"),
        (replaced(Role.ID, generated=False, default=attrs.NOTHING), r"its id 'id' has no value of its own"),
        (WithMore, r"column 'customer' has no default, and nothing of a message goes there"),
    ],
)
def test_a_table_that_cannot_keep_what_is_published_is_refused(declared: Any, mend: str) -> None:
    with Broker("sqlite://") as broker, pytest.raises(DeclarationError, match=mend):
        Tracking(broker, declared)


def test_names_are_text() -> None:
    with Broker("sqlite://") as broker:
        wrong: Any = ["mail", 7]
        with pytest.raises(DeclarationError, match=r"names=\['mail', 7\] holds 7; give destinations as text"):
            Tracking(broker, Outbox, names=wrong)


def test_one_publisher_given_twice_is_one() -> None:
    with Broker("sqlite://") as broker:
        tracking = Tracking(broker, Outbox)
        tracking.create_table()
        sent = Sent()
        for _ in range(2):
            tracking.publisher(sent)
        assert tracking.republish() == 0


def test_the_recommended_table_is_printed_with_its_indexes() -> None:
    with Broker("sqlite://") as broker:
        lines = Tracking(broker, Outbox).ddl().split(";\n")
    assert [line.partition(" (")[0].split()[:2] for line in lines if line] == [
        ["CREATE", "TABLE"],
        ["CREATE", "INDEX"],
        ["CREATE", "INDEX"],
    ]
    assert [line.splitlines()[-1] for line in lines[1:3]] == [
        'WHERE "processed_at" IS NULL',
        'WHERE "processed_at" IS NOT NULL',
    ]


def test_a_tracked_handler_keeps_its_name_and_the_type_of_its_message() -> None:
    with Broker("sqlite://") as broker:

        def work(number: int) -> None:
            """Works."""

        tracked = Tracking(broker, Outbox).consumer(work)
        assert (tracked.__name__, tracked.__doc__) == ("work", "Works.")
        assert tracked.__annotations__["message"] is int
        with pytest.raises(DeclarationError, match="a coroutine or generator"):
            Tracking(broker, Outbox).consumer(_coroutine)


def test_a_tracked_handler_is_refused_by_a_table_without_headers() -> None:
    """It would find no record, skip nothing and mark nothing: each record would be sent again at each start."""
    with Broker("sqlite://") as broker:
        queue = broker.queue(Job)
        for function in (_work, functools.partial(_work), _Working()):
            with pytest.raises(DeclarationError) as caught:
                queue.handler(Tracking(broker, Outbox).consumer(function))
            assert "finds its message's record by the headers, and table 'jobs' has none" in str(caught.value)
            assert "column.headers()" in str(caught.value)
        assert queue.registered is None


def test_a_transactional_one_is_refused_by_a_queue_of_another_database(tmp_path: Path) -> None:
    """Its record is read and marked in the delivery's transaction, where no such table is: it would come for ever."""
    with Broker(f"sqlite:///{tmp_path}/a.db") as here, Broker(f"sqlite:///{tmp_path}/b.db") as there:
        handler = Tracking(here, Outbox).consumer(_work)
        with pytest.raises(DeclarationError) as caught:
            there.queue(KeptJob).handler(transactional=True)(handler)
        assert f"its queue is in {there.dialect.source}, and the records are in {here.dialect.source}" in str(
            caught.value
        )
        there.queue(KeptJob).handler(handler)
        here.queue(KeptJob).handler(transactional=True)(handler)
        with Broker(f"sqlite:///{tmp_path}/a.db") as other:
            other.queue(KeptJob).handler(transactional=True)(handler)


def test_a_publisher_is_given_by_its_url_as_well() -> None:
    with Broker("sqlite://") as broker:
        tracking = Tracking(broker, Outbox)
        tracking.create_table()
        bus = MemoryPublisher.named("records")
        for given in ("memory://records", bus):
            tracking.publisher(given).publish([message()])
        assert [one.id for one in bus.messages] == ["1", "2"]
        assert tracking.republish() == tracking.republish("memory://records") == 2


@pytest.mark.parametrize("wrong", [None, 7, MemoryPublisher, object()], ids=["none", "number", "class", "object"])
def test_what_nothing_can_be_published_with_is_refused(wrong: Any) -> None:
    with Broker("sqlite://") as broker:
        tracking = Tracking(broker, Outbox)
        with pytest.raises(DeclarationError, match=r"^publisher=.* is no publisher; give a URL"):
            tracking.publisher(wrong)
        if wrong is not None:
            with pytest.raises(DeclarationError, match=r"^publisher=.* is no publisher; give a URL"):
                tracking.republish(wrong)


def _work(text: str) -> None: ...


class _Working:
    def __call__(self, text: str) -> None: ...


async def _coroutine(message: Any) -> None: ...
