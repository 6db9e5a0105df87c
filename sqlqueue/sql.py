"""SQL reads as SQL: a template becomes a `Statement`. `{braces}` are structure, `:names` are values.

Names of tables and columns hold no line breaks (the declaration sees to that), so lines may be indented as they are.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import attrs

_STRUCTURE = re.compile(r"\{(\w+)\}")
_INDENT = re.compile(r" *")

# What the scanner steps over comes first: comments, literals, quoted identifiers and casts hold no values.
_VALUE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|::|:([^\W\d]\w*)", re.DOTALL)


@attrs.frozen
class Statement:
    """One statement in a dialect's own words.

    `parameters` are the names of its values, in the order in which they are bound. `given` are those of them
    that come as a column of values, one for each row of the call. `width` is the number of columns that it
    returns, 0 where it returns no rows. `writes` is False for a statement that only reads. `fresh`: it must see what
    the calls before it in its transaction did, and what others committed meanwhile.
    `sql` is the text as it is sent.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    given: tuple[str, ...] = ()
    width: int = 0
    writes: bool = True
    fresh: bool = False
    sql: bytes = attrs.field(init=False, eq=False, repr=False)

    @sql.default
    def _sql(self) -> bytes:
        return self.text.encode()

    def bind(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple([values[name] for name in self.parameters])


@attrs.frozen
class Call:
    """A statement with its values.

    Where the statement has `given` parameters, each of them is bound to a list, all of one length; the call
    stands for one execution per element, however the dialect carries it out.
    """

    statement: Statement
    values: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen
class Begin:
    """Begin a transaction, which stays open until a `Commit`."""

    isolation: str = "READ COMMITTED"


@attrs.frozen
class Commit:
    """Commit the open transaction, durably. `chain`: and begin another one of its kind, which stays open."""

    chain: bool = False


@attrs.frozen
class Rollback:
    """Undo the open transaction."""


COMMIT, COMMIT_AND_CHAIN, ROLLBACK = Commit(), Commit(chain=True), Rollback()


class Savepoint(Enum):
    """Around what a handler writes in its delivery's transaction. Whoever ended that transaction has no such savepoint
    any more, and is found out by it."""

    SET = "SAVEPOINT sqlqueue_handler"
    RELEASE = "RELEASE SAVEPOINT sqlqueue_handler"
    UNDO = "ROLLBACK TO SAVEPOINT sqlqueue_handler"


#: What a connection can be told to do. A call outside of a transaction is one by itself, and need not be durable.
Step = Call | Begin | Commit | Rollback | Savepoint


def fill(template: str, fragments: Mapping[str, str]) -> str:
    """`template` with each `{name}` replaced by its fragment, indented as it stands; blank lines are dropped."""

    def put(match: re.Match[str]) -> str:
        indent = _INDENT.match(template, template.rfind("\n", 0, match.start()) + 1)
        return fragments[match.group(1)].replace("\n", "\n" + (indent.group() if indent else ""))

    text = _STRUCTURE.sub(put, template)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip())


def statement(
    name: str,
    template: str,
    fragments: Mapping[str, str],
    *,
    placeholder: Callable[[int], str],
    given: tuple[str, ...] = (),
    width: int = 0,
    writes: bool = True,
    fresh: bool = False,
) -> Statement:
    """Compose a statement: fill in the structure, number the values by first use, head it with its name.

    `placeholder(n)` is the dialect's text for the n-th value, counted from 1.
    """
    parameters: list[str] = []

    def number(match: re.Match[str]) -> str:
        value = match.group(1)
        if value is None:
            return match.group(0)
        if value not in parameters:
            parameters.append(value)
        return placeholder(parameters.index(value) + 1)

    text = _VALUE.sub(number, fill(template, fragments))
    return Statement(
        name=name,
        text=f"-- sqlqueue: {name}\n{text}",
        parameters=tuple(parameters),
        given=given,
        width=width,
        writes=writes,
        fresh=fresh,
    )
