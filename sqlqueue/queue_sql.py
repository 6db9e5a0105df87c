"""The parts that a queue's statements share: names, conditions, assignments and orders, as the dialect writes them.

Names that a statement makes up begin with an underscore, such as `_due`: a user's table may be called `due`.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.dialect import Converter, Dialect
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill, statement

# The database makes the key, so that a claim can leave out rows whose keys are held. NULL reads as an empty text.
CONSTANT = "CAST(:key_text_{number} AS text)"
PART = "COALESCE({text}, '')"

#: An empty mapping that nobody can change.
NO_VALUES: Mapping[Any, str] = MappingProxyType({})


@attrs.frozen
class QueueSQL:
    """The parts of one queue's statements. `grouped`: the queue reads one group of the table."""

    dialect: Dialect
    spec: TableSpec
    grouped: bool

    def column(self, role: Role) -> str:
        """The column that plays `role`, qualified by its table; the table must have it."""
        spec = self.spec.role(role)
        assert spec is not None, role
        return self.qualified(spec)

    def qualified(self, spec: ColumnSpec) -> str:
        return f"{self.dialect.quote(self.spec.name)}.{self.dialect.quote(spec.name)}"

    def bare(self, role: Role) -> str:
        """The same without its table, as SET and INSERT take it."""
        spec = self.spec.role(role)
        assert spec is not None, role
        return self.dialect.quote(spec.name)

    def moment(self, role: Role, *, bare: bool = False) -> str:
        """A moment column as an expression that is never NULL: a row without one counts as long due."""
        spec = self.spec.role(role)
        assert spec is not None, role
        name = self.bare(role) if bare else self.qualified(spec)
        return f"COALESCE({name}, {self.dialect.earliest(spec)})" if spec.optional else name

    def now(self, role: Role) -> str:
        """*Now* as the role's column holds moments: a value of the host's clock, or the database's own."""
        spec = self.spec.role(role)
        assert spec is not None, role
        return self.dialect.now(spec) if isinstance(self.spec.clock, DatabaseClock) else f":now_{role.value}"

    def unfinished(self) -> list[str]:
        """Conditions that hold for this queue's rows that are neither processed nor parked."""
        conditions = [f"{self.column(Role.GROUP)} = :group"] if self.grouped else []
        return [*conditions, *self.open_rows()]

    def open_rows(self, *, bare: bool = False) -> list[str]:
        """The same for the rows of the whole table. `bare`: as an index takes it."""
        name = self.bare if bare else self.column
        roles = [role for role in Role if role.fact.unfinished and self.spec.has(role)]
        return [fill(role.fact.unfinished or "", {"column": name(role)}) for role in roles]

    def assignments(
        self,
        *verbs: str,
        first: Role | None = None,
        but: Role | None = None,
        instead: Mapping[Role, str] = NO_VALUES,
        values: Mapping[str, str] = NO_VALUES,
    ) -> list[str]:
        """What a statement writes into the columns of the roles, as their facts say.

        `verbs` are fields of `roles.Writes`; the first one that says something about a role decides. `first`: the role
        whose column comes first. `but`: a role that is left out. `instead`: what is written in place of what the facts
        say. `values`: the text for the names in braces.
        """
        roles = [role for role in Role if self.spec.has(role) and role is not but]
        written: list[str] = []
        for role in sorted(roles, key=lambda role: role is not first):
            said = next((one for verb in verbs if (one := getattr(role.fact.writes, verb)) is not None), None)
            if role in instead:
                written.append(f"{self.bare(role)} = {instead[role]}")
            elif said is not None:
                own = {"column": self.column(role), **({"now": self.now(role)} if role.fact.moment else {})}
                written.append(f"{self.bare(role)} = {fill(said, {**own, **values})}")
        return written

    def order(self, *, bare: bool = False) -> list[str]:
        """The claim order: by priority, then by when the row fell due, then by id. `bare`: as an index takes it."""
        keys = [self.rank(bare=bare)] if self.spec.has(Role.PRIORITY) else []
        keys += [self.moment(Role.RETRY_AFTER, bare=bare)] if self.spec.has(Role.RETRY_AFTER) else []
        return [*keys, self.bare(Role.ID) if bare else self.column(Role.ID)]

    def fifo_order(self, *, bare: bool = False) -> list[str]:
        """The order of a FIFO table: by key; within a key first the row in work, then a row that has begun, then by
        priority and id. So the first row of a key is its head: the row in work, or the only row that may be claimed."""
        spec = self.spec.fifo_column
        assert spec is not None
        name = self.bare if bare else self.column
        held = [f"({name(Role.LEASE)} IS NULL)"] if self.spec.has(Role.LEASE) else []
        by_priority = self.spec.has(Role.PRIORITY)
        ranked = [f"({self.zero(Role.ATTEMPT, bare=bare)} = 0)", self.rank(bare=bare)] if by_priority else []
        line = self.dialect.quote(spec.name) if bare else self.qualified(spec)
        return [line, *held, *ranked, name(Role.ID)]

    def rank(self, *, bare: bool = False) -> str:
        """The priority as an expression that is never NULL: some databases sort NULL first, others last."""
        return self.zero(Role.PRIORITY, bare=bare)

    def zero(self, role: Role, *, bare: bool = False) -> str:
        """A column of numbers as an expression that reads NULL as 0."""
        spec = self.spec.role(role)
        assert spec is not None, role
        name = self.bare(role) if bare else self.qualified(spec)
        return f"COALESCE({name}, 0)" if spec.optional else name

    def lock_key(self) -> str:
        """The key of a row's advisory lock, as an expression. Its constant parts are values, see `lock_texts`."""
        lock = self.spec.advisory_lock
        assert lock is not None
        parts = [fill(CONSTANT, {"number": "0"})]
        for number, field in enumerate(lock.fields, 1):
            column = next(spec for spec in self.spec.columns if spec.field == field)
            text = self.dialect.text_of(column, self.qualified(column))
            parts += [fill(PART, {"text": text}), fill(CONSTANT, {"number": str(number)})]
        return " || ".join(parts)

    def lock_texts(self) -> Mapping[str, str]:
        """The values of a key's constant parts. A key that is not shared begins with the table's name."""
        lock = self.spec.advisory_lock
        assert lock is not None
        first, *others = lock.texts
        texts = [first if lock.shared else f"{self.spec.full_name}:{first}", *others]
        return {f"key_text_{number}": text for number, text in enumerate(texts)}

    def statement(self, name: str, template: str, *, width: int, writes: bool = True, **fragments: str) -> Statement:
        """A statement without given rows."""
        return statement(
            name,
            template,
            {"table": self.dialect.table(self.spec), "id": self.column(Role.ID), **fragments},
            placeholder=self.dialect.placeholder,
            width=width,
            writes=writes,
        )

    def given(self, name: str, *, singly: bool = False) -> str:
        """The value of a given column; `singly`: of the one row."""
        return f":{name}" if singly or not self.dialect.given({"id": self.spec.id}) else f"_given.{name}"

    def settlement(
        self, name: str, template: str, given: Mapping[str, ColumnSpec], *, singly: bool = False, **fragments: str
    ) -> Statement:
        """A statement over given rows, or over one; `{given_x}` is the value of the given column x."""
        source = "" if singly else self.dialect.given(given)
        values = {f"given_{key}": self.given(key, singly=singly) for key in given}
        spec = self.spec.role(Role.LEASE)
        fence = f"AND {self.qualified(spec)} = {values['given_token']}" if spec and "token" in given else ""
        return statement(
            name,
            template,
            {
                "table": self.dialect.table(self.spec),
                "id": self.column(Role.ID),
                "using_given": f"USING {source}" if source else "",
                "from_given": f"FROM {source}" if source else "",
                "joined_given": f"CROSS JOIN {source}" if source else "",
                "fence": fence,
                **values,
                **fragments,
            },
            placeholder=self.dialect.placeholder,
            given=() if singly else tuple(given),
            width=1,
        )

    def encoder(self, role: Role) -> Converter:
        """Encode a value, or None, for the column that plays `role`."""
        spec = self.spec.role(role)
        return _optional(self.dialect.encoder(spec) if spec else None)

    def now_encoder(self, role: Role) -> Converter:
        """Encode *now* for comparison with the column that plays `role`."""
        spec = self.spec.role(role)
        return _optional(self.dialect.now_encoder(spec) if spec else None)

    def decoder(self, role: Role) -> Converter:
        """Decode what the driver returns, or None, of the column that plays `role`."""
        spec = self.spec.role(role)
        return _optional(self.dialect.decoder(spec) if spec else None)


def _optional(convert: Converter | None) -> Converter:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def also(assignments: Sequence[str]) -> str:
    """Assignments that follow another one in a SET."""
    return "".join(f", {assignment}" for assignment in assignments)


def every(conditions: Sequence[str]) -> str:
    """All of these, a line each."""
    return "\n  AND ".join(conditions) if conditions else "TRUE"
