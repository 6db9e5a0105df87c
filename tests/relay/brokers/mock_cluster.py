"""A Kafka cluster inside this process: librdkafka brings one to test on, which Python's client does not show."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import confluent_kafka

PRODUCER = 0
PRODUCE = 0  # the request's number in Kafka's protocol

TOPIC_AUTHORIZATION_FAILED = 29
MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER = 45  # of an idempotent producer, which can send nothing more after it

_library: ctypes.CDLL | None = None


def library() -> ctypes.CDLL:
    """The librdkafka that confluent_kafka has loaded."""
    global _library
    if _library is None:
        confluent_kafka.libversion()  # it is loaded
        paths = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "librdkafka" in line}
        _library = ctypes.CDLL(paths.pop() if paths else "librdkafka.so.1")
        for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
            getattr(_library, name).restype = ctypes.c_void_p
        _library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    return _library


@attrs.frozen
class MockCluster:
    """One broker. Its commands are in force when they return."""

    servers: str
    _cluster: ctypes.c_void_p

    def create_topic(self, topic: str, partitions: int) -> None:
        assert library().rd_kafka_mock_topic_create(self._cluster, topic.encode(), partitions, 1) == 0

    def refuse_topic(self, topic: str, error: int = TOPIC_AUTHORIZATION_FAILED) -> None:
        library().rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), error)

    def refuse_requests(self, *errors: int) -> None:
        """The next requests that bring messages, one error each."""
        numbers = (ctypes.c_int * len(errors))(*errors)
        library().rd_kafka_mock_push_request_errors_array(
            self._cluster, ctypes.c_int16(PRODUCE), ctypes.c_size_t(len(errors)), numbers
        )

    def stop(self) -> None:
        """Cut all connections and take none."""
        assert library().rd_kafka_mock_broker_set_down(self._cluster, 1) == 0

    def start(self) -> None:
        assert library().rd_kafka_mock_broker_set_up(self._cluster, 1) == 0

    def delay(self, milliseconds: int) -> None:
        """Answer so much later."""
        assert library().rd_kafka_mock_broker_set_rtt(self._cluster, 1, milliseconds) == 0


@contextmanager
def mock_cluster() -> Iterator[MockCluster]:
    lib = library()
    text = ctypes.create_string_buffer(512)
    conf = ctypes.c_void_p(lib.rd_kafka_conf_new())
    lib.rd_kafka_conf_set(conf, b"log_level", b"0", text, ctypes.c_size_t(512))
    made = lib.rd_kafka_new(PRODUCER, conf, text, ctypes.c_size_t(512))
    assert made, text.value
    handle = ctypes.c_void_p(made)
    cluster = ctypes.c_void_p(lib.rd_kafka_mock_cluster_new(handle, 1))
    try:
        yield MockCluster(lib.rd_kafka_mock_cluster_bootstraps(cluster).decode(), cluster)
    finally:
        lib.rd_kafka_mock_cluster_destroy(cluster)
        lib.rd_kafka_destroy(handle)
