"""A program that forks: `python -m tests.consumer.forking URL OPTIONS`. It tells, a line each, what each side finds."""

import json
import os
import sys

from sqlqueue import Broker, Consumer, SQLQueueError
from tests.consumer.helpers import Inbox
from tests.consumer.tables import TABLES


def say(*words: object) -> None:
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


def used(broker: Broker, me: str) -> object:
    """The driver's connection that this side enqueues by; told with its backend, where there is one."""
    with broker.pool.connection() as connection:
        driver = connection.driver
        backend = getattr(getattr(driver, "info", None), "backend_pid", "none")
    say(me, "backend", backend)
    return driver


def refused(me: str, consumer: Consumer) -> None:
    for name in ("start", "stop", "run_until_idle", "run_forever"):
        try:
            getattr(consumer, name)()
        except SQLQueueError as error:
            say(me, name, "refused:", error)
        else:
            say(me, name, "ran")


def main(url: str, *, strategy: str = "lease", running: bool = False) -> None:
    broker = Broker(url)
    inbox = Inbox()
    queue = broker.queue(TABLES[strategy])
    broker.create_tables()
    queue.handler(inbox.handle)
    consumer = Consumer(broker)
    if running:
        consumer.start()
    else:
        queue.enqueue(1)
    parents = used(broker, "parent")
    child = os.fork()
    if not child:
        say("child same", used(broker, "child") is parents)
        if running:
            refused("child", consumer)
        queue.enqueue(2)
        queue.enqueue_many([3, 4])
        broker.close()
        sys.exit(0)
    queue.enqueue(5)
    _, status = os.waitpid(child, 0)
    say("child ended", os.waitstatus_to_exitcode(status))
    say("parent same", used(broker, "parent") is parents)
    queue.enqueue(6)
    if running:
        handled = sorted(inbox.some(5))
        say("handled", *handled)
        say("stopped", consumer.stop())
    else:
        child = os.fork()
        if not child:
            Consumer(broker).run_until_idle(10)
            say("child handled", *sorted(inbox.some(6)))
            broker.close()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        say("child ended", os.waitstatus_to_exitcode(status))
    broker.close()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
