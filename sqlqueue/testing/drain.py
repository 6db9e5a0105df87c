"""Run a broker's handlers on what is due, in the middle of a test."""

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer, Stopped
from sqlqueue.observers import Observer


def drain(broker: Broker, *observers: Observer, timeout: float = 10.0) -> Stopped:
    """Run every registered handler until no row is due and none is in work; what was done.

    Raises `TimeoutError` after `timeout` seconds, and what a handler ended the run with.
    """
    return Consumer(broker, observers=observers, drain_timeout=timeout).run_until_idle(timeout)
