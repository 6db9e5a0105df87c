"""Messages a second to each broker that is here, beside a loop by hand on the same client, round by round in turn."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from uuid import uuid4

import pytest

from benchmarks.report import Report, Rounds
from sqlqueue.publisher import OutgoingMessage
from tests.support import availability

ROUNDS = 5
SINGLE, MANY, BATCH = 300, 3_000, 100

TITLE = "publish: confirmed messages a second from one thread, 100 bytes, medians of interleaved rounds"
HEADING = ("", "call", "by hand", "its messages/s", "sqlqueue messages/s", "ratio")

PAYLOAD = b"x" * 100

#: Sends so many messages, each call with a batch of such a size, and returns when all are confirmed.
Send = Callable[[int, int], None]


@contextmanager
def redis_by_hand() -> Iterator[tuple[str, str, Send]]:
    import redis

    with redis.Redis() as client:
        stream = f"bench-{uuid4().hex}"

        def send(count: int, batch: int) -> None:
            for _ in range(0, count, batch):
                with client.pipeline(transaction=False) as pipeline:
                    for _ in range(batch):
                        pipeline.xadd(stream, {"payload": PAYLOAD})
                    pipeline.execute()

        yield f"redis://127.0.0.1/0?stream={stream}", "XADD in a pipeline", send
        client.delete(stream)


@contextmanager
def rabbitmq_by_hand() -> Iterator[tuple[str, str, Send]]:
    import pika

    connection = pika.BlockingConnection()
    channel, queue = connection.channel(), f"bench-{uuid4().hex}"
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2)

    def send(count: int, batch: int) -> None:
        for _ in range(count):
            channel.basic_publish("", queue, PAYLOAD, properties, mandatory=True)

    yield f"amqp://127.0.0.1/?routing_key={queue}", "BlockingConnection", send
    channel.queue_delete(queue)
    connection.close()


@contextmanager
def nats_by_hand() -> Iterator[tuple[str, str, Send]]:
    import asyncio

    import nats

    loop = asyncio.new_event_loop()
    client = loop.run_until_complete(nats.connect())
    streams, subject = client.jetstream(), f"bench-{uuid4().hex}"
    loop.run_until_complete(streams.add_stream(name=subject, subjects=[subject]))

    async def gathered(batch: int) -> None:
        await asyncio.gather(*[streams.publish(subject, PAYLOAD) for _ in range(batch)])

    def send(count: int, batch: int) -> None:
        for _ in range(0, count, batch):
            loop.run_until_complete(gathered(batch))

    yield f"nats://127.0.0.1/{subject}", "publish, gathered", send
    loop.run_until_complete(streams.delete_stream(subject))
    loop.run_until_complete(client.close())
    loop.close()


@contextmanager
def kafka_by_hand() -> Iterator[tuple[str, str, Send]]:
    from confluent_kafka import Producer

    from tests.relay.brokers.mock_cluster import mock_cluster

    with mock_cluster() as cluster:
        cluster.create_topic("bench", 4)
        settings = {"bootstrap.servers": cluster.servers, "enable.idempotence": True, "linger.ms": 0}
        producer = Producer({**settings, "log_level": 0})

        def send(count: int, batch: int) -> None:
            for _ in range(0, count, batch):
                for _ in range(batch):
                    producer.produce("bench", PAYLOAD)
                assert producer.flush() == 0

        yield f"kafka://{cluster.servers}/bench", "produce, flush (mock)", send


BY_HAND = {"redis": redis_by_hand, "rabbitmq": rabbitmq_by_hand, "nats": nats_by_hand, "kafka": kafka_by_hand}

#: How messages are handed to a publisher: what it is called, how many a call, and the key of each.
CALLS: dict[str, tuple[int, Callable[[int], str | None]]] = {
    "one": (1, lambda _: None),
    "100": (BATCH, lambda _: None),
    "100 of 10 keys": (BATCH, lambda number: f"{number % 10}"),
    "100 of one key": (BATCH, lambda _: "k"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("broker", BY_HAND)
def test_publish(broker: str, call: str, benchmark: Any, report: Report, scaled: Callable[[int], int]) -> None:
    missing = availability.why_no_broker(broker)
    if missing is not None:
        pytest.skip(missing)
    size, key = CALLS[call]
    count = max(size, scaled(SINGLE if size == 1 else MANY) // size * size)
    batch = [OutgoingMessage(payload=PAYLOAD, key=key(number)) for number in range(size)]
    raw, ours = Rounds(), Rounds()
    with BY_HAND[broker]() as (url, name, send):
        publisher = import_module(f"sqlqueue.relay.targets.{broker}").sqlqueue_publisher(url)

        def publish() -> None:
            for _ in range(count // size):
                publisher.publish(batch)

        def by_hand() -> None:
            _timed(raw, lambda: send(count, size))

        publisher.publish(batch)
        send(size, size)
        benchmark.pedantic(lambda: _timed(ours, publish), setup=by_hand, rounds=ROUNDS)
        publisher.close()
    rates = (raw.rate(count), ours.rate(count))
    report.add(TITLE, HEADING, (broker, call, name, *(f"{rate:,.0f}" for rate in rates), f"{rates[1] / rates[0]:.2f}"))
    benchmark.extra_info.update(by_hand=rates[0], messages_per_second=rates[1])


def _timed(rounds: Rounds, run: Callable[[], None]) -> None:
    began, processor = time.perf_counter(), time.process_time()
    run()
    rounds.add(time.perf_counter() - began, time.process_time() - processor)
