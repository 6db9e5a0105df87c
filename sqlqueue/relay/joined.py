"""Inside a handler's own transaction: what fails here leaves that transaction as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue.connection import Connection
from sqlqueue.sql import Call, Statement

SET = Statement("set a savepoint", "SAVEPOINT sqlqueue_tracking", ())
RELEASE = Statement("release it", "RELEASE SAVEPOINT sqlqueue_tracking", ())
UNDO = Statement("roll back to it", "ROLLBACK TO SAVEPOINT sqlqueue_tracking", ())


@contextmanager
def apart(connection: Connection) -> Iterator[Connection]:
    """The connection, behind a savepoint."""
    connection.run([Call(SET)])
    try:
        yield connection
    except BaseException:
        connection.run([Call(UNDO)])
        connection.run([Call(RELEASE)])
        raise
    connection.run([Call(RELEASE)])
