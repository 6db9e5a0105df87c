"""How a handler is run: each setting in every form that it has, refused by its name where it cannot work."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sqlqueue import Broker, ColumnSpec, DeclarationError, PublisherNotFound, Role, TableSpec, column, retry, table
from sqlqueue.handler import Handler
from sqlqueue.relay import MemoryPublisher
from sqlqueue.spec import spec_of
from tests.unit.declared import BY_HAND, Invoice, Job, Plain, made, one, refusal


def test_what_is_not_set_is_the_brokers_or_the_default() -> None:
    with Broker("sqlite://", lease=12, poll_interval=timedelta(seconds=3)) as broker:
        queue = broker.queue(Job)
        assert queue.registered is None
        assert queue.handler(one) is one
        assert queue.registered == Handler(
            function=one,
            name="one",
            kind=Invoice,
            takes_delivery=False,
            workers=1,
            by_key=False,
            transactional=False,
            prefetch=0,
            max_attempts=None,
            dead_letter=None,
            retry=retry.Exponential(),
            on_decode_error=retry.NoRetry(),
            lease=12,
            poll_interval=3,
        )


def test_settings_are_taken_in_every_form_that_they_have() -> None:
    handler = made(
        one, lease=timedelta(minutes=1), poll_interval=0.5, retry=None, on_decode_error=5, workers=4, prefetch=64
    )
    assert (handler.lease, handler.poll_interval, handler.workers, handler.prefetch) == (60, 0.5, 4, 64)
    assert (handler.retry, handler.on_decode_error) == (retry.NoRetry(), retry.Fixed(5))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"workers": 0}, "table 'jobs', handler one: workers is 0; give a whole number from 1 up"),
        ({"workers": True}, "table 'jobs', handler one: workers is True; give a whole number from 1 up"),
        ({"workers": 1.5}, "table 'jobs', handler one: workers is 1.5; give a whole number from 1 up"),
        ({"prefetch": -1}, "table 'jobs', handler one: prefetch is -1; give a whole number from 0 up"),
        ({"lease": 0.09}, "lease is 0.09; give seconds from 0.1 up"),
        ({"lease": -1}, "lease is -1; give seconds from 0 up"),
        ({"lease": "30"}, "lease is '30'; give seconds as a number, or a timedelta"),
        ({"lease": 1e15}, "lease is 1000000000000000.0, which leads past the last year that a datetime holds"),
        ({"poll_interval": 0}, "poll_interval is 0, which would claim without pause; give seconds above 0"),
        ({"poll_interval": float("inf")}, "poll_interval is inf; give seconds from 0 up"),
        ({"retry": -1}, "table 'jobs', handler one: retry=-1: a fixed delay is -1; give seconds from 0 up"),
        (
            {"on_decode_error": retry.NoRetry},
            "table 'jobs', handler one: on_decode_error=<class 'sqlqueue.retry.NoRetry'>: NoRetry is a class; give an "
            "object of it, such as NoRetry()",
        ),
        (
            {"retry": {int: 5}},
            "table 'jobs', handler one: retry={<class 'int'>: 5}: <class 'int'> is no exception class; give classes of "
            "exceptions as keys",
        ),
        (
            {"max_attempts": 3},
            "table 'jobs', handler one: max_attempts needs a column that counts; mark one with column.attempt()",
        ),
        (
            {"by_key": True},
            "table 'jobs', handler one: by_key needs a key; mark a column with column.partition_key()",
        ),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_its_name(settings: dict[str, Any], said: str) -> None:
    assert refusal(made, one, **settings) == said


@pytest.mark.parametrize("cap", [0, -1, True, 2.0])
def test_a_cap_is_a_whole_number_from_one_up(cap: Any) -> None:
    counting = TableSpec(
        name="jobs",
        columns=(
            ColumnSpec(field="id", type=int, role=Role.ID),
            ColumnSpec(field="tries", type=int, role=Role.ATTEMPT),
            ColumnSpec(field="body", type=bytes, role=Role.PAYLOAD),
        ),
    )
    assert made(one, counting, max_attempts=3).max_attempts == 3
    said = f"table 'jobs', handler one: max_attempts is {cap!r}; give a whole number from 1 up"
    assert refusal(made, one, counting, max_attempts=cap) == said


@pytest.mark.parametrize("given", [object(), 7, Broker("sqlite://").queue(Plain)])
def test_what_nothing_can_be_published_with_is_refused_as_the_place_of_replies(given: Any) -> None:
    said = refusal(made, one, reply_to=given)
    assert said.startswith(f"reply_to={given!r} is no publisher; give a URL, or an object with publish(messages)")
    assert said.endswith("which a queue has as sqlqueue.relay.QueuePublisher(queue)")


def test_a_url_that_nothing_serves_is_refused_where_the_handler_is_declared() -> None:
    with pytest.raises(PublisherNotFound, match=r"URL scheme 'carrier-pigeon'; installed are: .*memory://"):
        made(one, reply_to="carrier-pigeon://loft")


def test_a_handler_that_replies_keeps_its_publisher_or_the_url() -> None:
    bus = MemoryPublisher()
    assert made(one, reply_to=bus).reply_to is bus
    assert made(one, reply_to="memory://settings").reply_to == "memory://settings"
    assert made(one).reply_to is None


# -- one handler a queue ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", [Plain, spec_of(Plain), BY_HAND])
def test_a_second_handler_on_a_queue_is_refused_by_both_names(declared: Any) -> None:
    """SUITE 11"""

    def first(row: Any) -> None: ...

    def second(row: Any) -> None: ...

    here = "test_a_second_handler_on_a_queue_is_refused_by_both_names.<locals>"
    with Broker("sqlite://") as broker:
        broker.queue(Plain).handler(first)
        assert refusal(broker.queue(declared).handler, second) == (
            f"queue plain: {here}.second is its second handler beside {here}.first; a queue of one broker has one: "
            "leave out one of the two"
        )


def test_each_group_and_each_broker_has_a_handler_of_its_own() -> None:
    @table("grouped")
    class Grouped:
        id: int = column.id(generated=True)
        team: str = column.group()

    def take(row: Any) -> None: ...

    with Broker("sqlite://") as here, Broker("sqlite://") as there:
        for queue in (here.queue(Grouped, "a"), here.queue(Grouped, "b"), there.queue(Grouped, "a")):
            queue.handler(take)
            assert queue.registered is not None


def test_a_transactional_handler_refuses_what_cannot_go_with_it() -> None:
    with Broker("sqlite://") as broker:
        with pytest.raises(DeclarationError, match="prefetch=2 beside transactional"):
            broker.queue(Job).handler(transactional=True, prefetch=2)(one)
        serializable = attrs.evolve(spec_of(Job), isolation="SERIALIZABLE")
        with pytest.raises(DeclarationError, match="transactional with a lease beside isolation='SERIALIZABLE'"):
            broker.queue(serializable).handler(transactional=True)(one)
