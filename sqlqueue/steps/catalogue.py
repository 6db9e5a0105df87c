"""Which class a stored step is, and its JSON: `{"Task": {"Step": {"field": value}}}`, as pg_task writes it."""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from types import UnionType
from typing import Any, Union, get_args, get_origin

import attrs
from cattrs import Converter, transform_error
from cattrs.errors import BaseValidationError

from sqlqueue.codec import Codec, JsonCodec, from_json, make_converter, takes_none
from sqlqueue.errors import DeclarationError, DecodeError, EncodeError, SQLQueueError
from sqlqueue.outcome import Rules, describe_value
from sqlqueue.retry import policy
from sqlqueue.steps.step import Step
from sqlqueue.steps.task import DOT, Task

_write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


class UnknownStep(SQLQueueError):  # noqa: N818 - no error of anybody's: others know the step
    """A stored step whose name is not known here."""


@attrs.frozen(kw_only=True)
class StepKind:
    """One step of one task: its class, its fields, how it settles and how it is read.

    Of its only field, where it has one without a default: `bare_none`: whether that may be None; `bare_names`: the
    names that an object has which it holds.
    """

    task: str
    name: str
    step: type[Step]
    fields: tuple[str, ...]
    bare_none: bool
    bare_names: frozenset[str]
    rules: Rules
    structure: Callable[[Any, Any], Any] = attrs.field(repr=False)
    prefix: str = attrs.field(init=False, repr=False)

    @prefix.default
    def _prefix(self) -> str:
        """What stands in front of its fields' JSON; behind them are two braces."""
        return f"{{{_write(self.task)}:{{{_write(self.name)}:"

    def read(self, stored: Any) -> Step:
        """The step of what its JSON holds; `DecodeError` says what does not fit."""
        try:
            return self.make(stored)
        except Exception as error:  # noqa: BLE001 - the converter's hooks, and validators of the class's own
            raise DecodeError(
                f"step {self.name} of task {self.task} does not decode from {_shown(stored)}: {_reason(error)}"
            ) from None

    def make(self, stored: Any) -> Step:
        """The same, where what does not fit raises anything."""
        fields = stored or {}
        if len(self.fields) == 1 and self._is_bare(stored):
            fields = {self.fields[0]: stored}
        elif stored is not None and not isinstance(stored, dict):
            raise TypeError("it is no object of fields")
        made: Step = self.structure(fields, self.step)
        return made

    def _is_bare(self, stored: Any) -> bool:
        """Whether this is the value of the only field, as Rust writes a struct of one unnamed one.

        An object is that only where it is one of the class that the field declares: in a mapping any field would do,
        and one that was renamed since would be run as data.
        """
        if stored is None:
            return self.bare_none
        if not isinstance(stored, dict):
            return True
        return self.fields[0] not in stored and not self.bare_names.isdisjoint(stored)


class Catalogue:
    """The steps of a queue's tasks; `by_class`: their kinds by their classes.

    Raises `DeclarationError` where one name, or class, would mean two.
    """

    def __init__(self, tasks: Iterable[Task], codec: Codec) -> None:
        self._converter = codec.converter if isinstance(codec, JsonCodec) else make_converter()
        self._by_name: dict[tuple[str, str], StepKind] = {}
        self.by_class: dict[type[Step], StepKind] = {}
        for task in tasks:
            for step in task.steps:
                self._add(task, step)
        for task in tasks:
            for alias, step in task.aliases.items():
                self._name(*_former(task.name, alias), self.by_class[step])

    def __iter__(self) -> Iterator[StepKind]:
        return iter(self.by_class.values())

    def _add(self, task: Task, step: type[Step]) -> None:
        other = self.by_class.get(step)
        if other is not None:
            raise DeclarationError(
                f"step {step.__name__} belongs to task {other.task!r} and to {task.name!r}, and what is enqueued must "
                "name one of them; derive a class for the other"
            )
        self.by_class[step] = kind = _kind(task.name, step, self._converter)
        self._name(task.name, step.__name__, kind)

    def _name(self, task: str, step: str, kind: StepKind) -> None:
        if (task, step) in self._by_name:
            raise DeclarationError(
                f"two steps are called {step!r} in a task {task!r}; rename one, or leave out an alias"
            )
        self._by_name[task, step] = kind

    def kind_of(self, step: Any) -> StepKind:
        """The kind of a step at hand; `EncodeError` for what is none of this queue's."""
        kind = self.by_class.get(type(step))
        if kind is None:
            known = ", ".join(cls.__name__ for cls in self.by_class)
            raise EncodeError(f"{describe_value(step)} is no step of this queue's tasks; its steps are {known}")
        return kind

    def called(self, name: str) -> list[StepKind]:
        """The kinds of this name, `"Step"` or `"Task.Step"`, former names too."""
        task, dot, step = name.rpartition(DOT)
        return [kind for (one, two), kind in self._by_name.items() if two == step and (not dot or one == task)]

    def encode(self, step: Any) -> bytes:
        """A step's JSON; `EncodeError` where it has none, or none that the step can be read back from.

        It is read back at once, which is 1 µs of 3: a step that cannot be run must fail where it is made, and not where
        the one that led to it is gone.
        """
        kind = self.kind_of(step)
        try:
            fields = self._converter.unstructure(step, unstructure_as=kind.step) if kind.fields else None
            stored = _write(fields)
            encoded = f"{kind.prefix}{stored}}}}}".encode()
        except Exception as error:  # the converter's hooks meet values that are not what their fields declare
            raise EncodeError(
                f"step {kind.name} of task {kind.task} cannot be stored as JSON: {error}; use types that JsonCodec "
                "lists, or give the broker a JsonCodec whose converter knows them"
            ) from error
        try:
            kind.make(from_json(stored))
        except Exception as error:  # noqa: BLE001 - as in StepKind.read
            raise EncodeError(
                f"step {kind.name} of task {kind.task} cannot be stored, for it would not be read back from "
                f"{stored:.200}: {_reason(error)}; give its fields values of the types that they declare"
            ) from None
        return encoded

    def decode(self, stored: bytes | str) -> tuple[StepKind, Any]:
        """The kind of a stored step and what its JSON holds, for `StepKind.read`.

        Raises `UnknownStep` for names that are not known here, `DecodeError` for what is no step at all.
        """
        task, step, fields = names_of(stored)
        return self.named(task, step), fields

    def named(self, task: str, step: str) -> StepKind:
        """The kind of these names, former ones too; raises `UnknownStep`."""
        kind = self._by_name.get((task, step))
        if kind is None:
            raise UnknownStep(f"step {step!r} of task {task!r} is not known here")
        return kind


def names_of(stored: bytes | str) -> tuple[str, str, Any]:
    """The task, the step and the fields that a stored step's JSON names; `DecodeError` where it names none."""
    try:
        said = from_json(stored)
    except (ValueError, RecursionError) as error:  # the latter for what is nested too deeply
        raise DecodeError(f"the step is no JSON ({error}): {text_of(stored):.200}") from None
    if isinstance(said, dict) and len(said) == 1:
        ((task, inner),) = said.items()
        if isinstance(inner, dict) and len(inner) == 1:
            ((step, fields),) = inner.items()
            return task, step, fields
    raise DecodeError(f"the step is not of the form {{task: {{step: fields}}}}: {text_of(stored):.200}")


def text_of(stored: Any) -> str:
    """A stored step as text, whichever type its column has; a driver may have read its JSON."""
    if isinstance(stored, bytes | memoryview):
        return bytes(stored).decode(errors="replace")
    return stored if isinstance(stored, str) else json.dumps(stored, ensure_ascii=False)


def _shown(stored: Any) -> str:
    """What a step's JSON holds, for an error's text."""
    try:
        return f"{json.dumps(stored, ensure_ascii=False):.200}"
    except RecursionError:
        return "JSON that is nested too deeply"


def _reason(error: Exception) -> str:
    """What does not fit, each with the field that it stands in."""
    if not isinstance(error, BaseValidationError):
        return f"{type(error).__name__}: {error}"
    found = (line.rpartition(" @ ") for line in transform_error(error, path="", format_exception=_fault))
    return "; ".join(f"{place.lstrip('.')}: {fault}" if place else fault for fault, _, place in found)


def _fault(error: BaseException, _: type | None) -> str:
    return "it is missing" if isinstance(error, KeyError) else str(error)


def _former(task: str, alias: str) -> tuple[str, str]:
    named, dot, step = alias.rpartition(DOT)
    return (named, step) if dot else (task, step)


def _names_within(declared: Any) -> frozenset[str]:
    """The names of the fields of a class, or of those of a union; a mapping has none of its own."""
    origin = get_origin(declared) or declared
    if isinstance(origin, type) and attrs.has(origin):
        return frozenset(field.name for field in attrs.fields(origin))
    if isinstance(origin, type) and dataclasses.is_dataclass(origin):
        return frozenset(field.name for field in dataclasses.fields(origin))
    members = get_args(declared) if origin in (Union, UnionType) else ()
    return frozenset(name for member in members for name in _names_within(member))


def _kind(task: str, step: type[Step], converter: Converter) -> StepKind:
    where = f"step {step.__name__} of task {task!r}"
    fields = attrs.fields(step)  # type: ignore[arg-type]  # checked to be attrs
    try:
        structure = converter.get_structure_hook(step)
    except Exception as error:  # annotations of the user's may name anything
        raise DeclarationError(
            f"{where}: its fields cannot be read back: {error}; annotate types that JsonCodec lists"
        ) from error
    only = fields[0].type if len(fields) == 1 and fields[0].default is attrs.NOTHING else None
    return StepKind(
        task=task,
        name=step.__name__,
        step=step,
        fields=tuple(field.name for field in fields),
        bare_none=only is not None and takes_none(only),
        bare_names=_names_within(only),
        structure=structure,
        rules=Rules(
            max_attempts=step.retry_limit + 1,
            retry=policy(step.retry_delay),
            on_decode_error=policy(None),
            parks=True,
        ),
    )
