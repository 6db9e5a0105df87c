"""A task: the steps that it is made of, by name, checked where it is written."""

import inspect
from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Any

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.handler import whole
from sqlqueue.retry import policy
from sqlqueue.steps.step import Step

#: Stands between a task's name and a step's, where both are named.
DOT = "."


#: What a step's class says of all of its tasks, and how it is written: as a field each task would hold its own.
OF_THE_CLASS = {
    "retry_limit": "retry_limit: ClassVar[int] = 5",
    "retry_delay": "retry_delay: ClassVar[float] = 1.0",
    "transactional": "transactional: ClassVar[bool] = True",
    "run": "def run(self, context)",
}

#: Functions whose call runs nothing yet.
NO_METHODS = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _steps(steps: Iterable[type[Step]]) -> tuple[type[Step], ...]:
    given: Any = steps
    if isinstance(given, str | type) or not isinstance(given, Iterable):
        raise DeclarationError(f"a task's steps are {given!r:.200}; give a list of classes: Task('Greeter', [First])")
    return tuple(given)


def _aliases(aliases: Mapping[str, type[Step]]) -> Mapping[str, type[Step]]:
    given: Any = aliases
    if not isinstance(given, Mapping):
        raise DeclarationError(f"aliases={given!r:.200}; give former names with their classes: {{'Old': First}}")
    return MappingProxyType(dict(given))


@attrs.frozen
class Task:
    """A finite state machine of steps; each step is known by its class's name.

    `aliases`: former names of steps, each with the class that runs it now; `"Step"` for one of this task, and
    `"Task.Step"` for one of another name, such as that the task once had. Raises `DeclarationError` for what cannot
    work.
    """

    name: str
    steps: tuple[type[Step], ...] = attrs.field(converter=_steps)
    aliases: Mapping[str, type[Step]] = attrs.field(factory=dict, kw_only=True, converter=_aliases)

    def __attrs_post_init__(self) -> None:
        named: Any = self.name
        if not isinstance(named, str) or not named:
            raise DeclarationError(f"a task is named {self.name!r}; give a text, such as Task('Greeter', […])")
        if not self.steps:
            raise DeclarationError(f"task {self.name!r} has no steps; name their classes: Task({self.name!r}, [First])")
        names: set[str] = set()
        for step in self.steps:
            check_step(step, f"task {self.name!r}")
            if step.__name__ in names:
                raise DeclarationError(f"task {self.name!r}: two of its steps are called {step.__name__}; rename one")
            names.add(step.__name__)
        self._check_aliases(names)

    def _check_aliases(self, names: Set[str]) -> None:
        for alias, step in self.aliases.items():
            if not _is_name(alias):
                raise DeclarationError(
                    f"task {self.name!r}: the alias {alias!r} names no step; give 'Step' or 'Task.Step', as it was"
                )
            if step not in self.steps:
                raise DeclarationError(
                    f"task {self.name!r}: the alias {alias!r} is for {step!r}, which is none of its steps"
                )
            if alias in names:
                raise DeclarationError(f"task {self.name!r}: the alias {alias!r} is the name of one of its steps")


def _is_name(alias: Any) -> bool:
    if not isinstance(alias, str):
        return False
    task, dot, step = alias.rpartition(DOT)
    return bool(step and (task or not dot))


def check_step(step: Any, where: str) -> None:
    """`DeclarationError` for a class that cannot be a step."""
    if not isinstance(step, type) or not issubclass(step, Step):
        raise DeclarationError(f"{where}: {step!r} is no step; give classes that derive from sqlqueue.steps.Step")
    where = f"{where}: step {step.__name__}"
    if "__attrs_attrs__" not in vars(step):
        raise DeclarationError(f"{where} is no attrs class, so it has no fields to store; decorate it: @attrs.frozen")
    _check_fields(step, where)
    if inspect.isabstract(step):
        raise DeclarationError(f"{where} has no run(self, context); write what it does")
    if any(is_one(step.run) for is_one in NO_METHODS):
        raise DeclarationError(f"{where}: run is a coroutine or generator; steps run on threads: write a plain method")
    if not isinstance(step.transactional, bool):
        raise DeclarationError(f"{where}: transactional is {step.transactional!r}; give True or False")
    whole(step.retry_limit, f"{where}: retry_limit", 0)
    try:
        policy(step.retry_delay)
    except ValueError as error:
        raise DeclarationError(f"{where}: retry_delay={step.retry_delay!r}: {error}") from None


def _check_fields(step: type[Step], where: str) -> None:
    for field in attrs.fields(step):  # type: ignore[arg-type]  # checked to be attrs
        mend = OF_THE_CLASS.get(field.name)
        if mend is not None:
            raise DeclarationError(
                f"{where}: {field.name} is one of its fields, which are stored with each task; it is the class's: "
                f"write {mend}"
            )
        if not field.init:  # it would begin anew in each step, whatever the one before had made of it
            raise DeclarationError(
                f"{where}: its field {field.name} has init=False, so it is not stored; leave that out and give it a "
                "default, or make it a property"
            )
