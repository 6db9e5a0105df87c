"""The roles that columns play. One frozen fact per role says all that the library does with the role's column."""

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

import attrs


class Role(Enum):
    """The behaviours that a column can turn on, by the name that errors and docs use."""

    ID = "id"
    GROUP = "group"
    PRIORITY = "priority"
    PARTITION_KEY = "partition_key"
    RETRY_AFTER = "retry_after"
    ATTEMPT = "attempt"
    PROCESSED_AT = "processed_at"
    LEASE = "lease"
    HEADERS = "headers"
    PAYLOAD = "payload"
    ERROR = "error"
    RUNNING = "running"

    @property
    def fact(self) -> "RoleFact":
        """What the library does with a column of this role."""
        return FACTS[self]


class Moment(Enum):
    """A value that is made when it is needed."""

    NOW = "now"


NOW = Moment.NOW


@attrs.frozen(kw_only=True)
class Writes:
    """What each statement writes into a role's column, as SQL; None: the statement leaves the column as it is.

    `{column}` is the column itself, `{now}` is *now* as the column holds moments. The other names in braces are the
    statement's own. `settle` holds for every settlement of a row whose claim wrote to it, unless the settlement's own
    field says otherwise. `settle_locked` is the same for a row lock, whose claim writes nothing.
    """

    claim: str | None = None
    extend: str | None = None
    settle: str | None = None
    settle_locked: str | None = None
    finish: str | None = None
    retry: str | None = None
    advance: str | None = None
    park: str | None = None
    release: str | None = None
    requeue: str | None = None
    dead_letter: str | None = None


@attrs.frozen(kw_only=True)
class RoleFact:
    """All that the library knows of a role.

    `doc`, `without`: what the column does, and what happens on a table that lacks it; docs/tables.md shows both.
    `types`: the Python types that the column may be declared with; none named: any type. `open_type`: the type where
    the declaration leaves it open.

    `default`: what a new row object holds where nobody names a value. `filled`: what an insert puts into a column that
    takes no NULL where the row names nothing. `ddl`: the DEFAULT of the recommended table. `starts_null`: a new row
    has no value there, so the column must take NULL.

    `writes`: what the statements write. `unfinished`: the condition that holds while somebody still has to work on the
    row. `shown_as`: the attribute of a delivery that shows the value. `fifo`: the column can be marked with
    `fifo=True`. `fifo_needs`: the role that a FIFO table needs beside this one.

    `moment`: the column holds a moment. `walked`: a claim walks along the values, where the table hides rows.
    `verbatim`: text must come back exactly as it was written. `listed`: statements take many values of it as one list.
    """

    doc: str
    without: str = ""
    types: tuple[type, ...] = ()
    open_type: Any = Any
    default: Any = attrs.Factory(lambda: attrs.NOTHING)
    filled: Moment | Callable[[], Any] | None = None
    ddl: Any = None
    starts_null: bool = False
    writes: Writes = Writes()
    unfinished: str | None = None
    shown_as: str | None = None
    fifo: bool = False
    fifo_needs: Role | None = None
    moment: bool = False
    walked: bool = False
    verbatim: bool = False
    listed: bool = False

    @property
    def afresh(self) -> bool:
        """Whether a row that moves to its dead letter begins anew here: nothing of the old value goes along."""
        return self.starts_null or (self.writes.dead_letter is not None and not self.fifo)


FACTS: Mapping[Role, RoleFact] = {
    Role.ID: RoleFact(
        doc="The row's identity.",
        without="The role is required.",
        types=(int, str, UUID, bytes),
        shown_as="id",
        verbatim=True,
        listed=True,
    ),
    Role.GROUP: RoleFact(
        doc='`broker.queue(Mail, group="newsletter")` reads the rows of that group. `fifo=True`: one row of a group '
        "is in work at a time, in order.",
        without="A queue reads the whole table.",
        types=(str,),
        open_type=str,
        writes=Writes(dead_letter=":dead_letter_group"),
        shown_as="group",
        fifo=True,
        verbatim=True,
    ),
    Role.PRIORITY: RoleFact(
        doc="The row with the smaller value is claimed first.",
        without="Rows are claimed by `retry_after` where the table has it, then by id.",
        types=(int, float),
        open_type=int,
        default=0,
        ddl=0,
        fifo_needs=Role.ATTEMPT,
        walked=True,
    ),
    Role.PARTITION_KEY: RoleFact(
        doc="`handler(by_key=True)` runs the rows of one key in order. `fifo=True` does the same over all instances.",
        without="Deliveries have no key.",
        default=None,
        shown_as="key",
        fifo=True,
        verbatim=True,
    ),
    Role.RETRY_AFTER: RoleFact(
        doc="Hides the row until then: `delay=`, `at=` and retries set it.",
        without="The lease hides a row that is retried. Without a lease the row is due at once.",
        types=(datetime, int, float),
        open_type=datetime,
        default=None,
        filled=NOW,
        ddl=NOW,
        writes=Writes(retry="{due}", advance="{due}", dead_letter="{now}"),
        moment=True,
        walked=True,
    ),
    Role.ATTEMPT: RoleFact(
        doc="Counts the deliveries that have begun, from 0.",
        without="`max_attempts` is refused. A retry policy sees every failure as the first.",
        types=(int,),
        open_type=int,
        default=0,
        ddl=0,
        writes=Writes(
            claim="{counted}",
            settle_locked="{given_attempt}",
            advance="0",
            release="{column} - 1",
            requeue="0",
            dead_letter="0",
        ),
    ),
    Role.PROCESSED_AT: RoleFact(
        doc="A row that is finished gets the time here, and stays.",
        without="A row that is finished is deleted.",
        types=(datetime, int, float),
        open_type=datetime,
        default=None,
        starts_null=True,
        writes=Writes(finish="{now}"),
        unfinished="{column} IS NULL",
        moment=True,
    ),
    Role.LEASE: RoleFact(
        doc="The worker of the row holds it until then.",
        without="Rows are held by [row lock or advisory lock](strategies.md).",
        types=(datetime, int, float),
        open_type=datetime,
        default=None,
        starts_null=True,
        writes=Writes(
            claim=":expires",
            extend=":expires",
            settle="NULL",
            release="{given_until}",
            requeue="NULL",
            dead_letter="NULL",
        ),
        moment=True,
    ),
    Role.HEADERS: RoleFact(
        doc="A JSON object of texts, which the handler gets as `delivery.headers`.",
        without="`delivery.headers` is empty, and `headers=` is refused.",
        types=(str, dict),
        open_type=dict,
        default=None,
        filled=dict,
        writes=Writes(dead_letter="{headers}"),
        shown_as="headers",
    ),
    Role.PAYLOAD: RoleFact(
        doc="The encoded message, which the handler gets decoded.",
        without="The handler gets the row itself.",
        writes=Writes(advance="{stored}"),
        verbatim=True,
    ),
    Role.ERROR: RoleFact(
        doc="A row that is given up stays, with the reason here.",
        without="A row that is given up is dropped, with an error in the log.",
        types=(str,),
        open_type=str,
        default=None,
        starts_null=True,
        writes=Writes(park="{given_error}", requeue="NULL"),
        unfinished="{column} IS NULL",
        listed=True,
    ),
    Role.RUNNING: RoleFact(
        doc="True while the row is in work, for people who look with SQL. Under a row lock nobody sees it.",
        types=(bool, int),
        open_type=bool,
        default=False,
        ddl=False,
        writes=Writes(claim="TRUE", settle="FALSE", requeue="FALSE", dead_letter="FALSE"),
    ),
}

#: The roles whose columns hold moments.
MOMENTS = tuple(role for role in Role if role.fact.moment)

#: The roles whose rows a FIFO table hands out one at a time.
FIFO_ROLES = tuple(role for role in Role if role.fact.fifo)

#: The roles whose values a row does not take along to its dead letter.
AFRESH = tuple(role for role in Role if role.fact.afresh)
