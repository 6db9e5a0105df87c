"""Tasks as they are declared, and their steps as JSON: every mistake is found where it is written."""

import dataclasses
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, ClassVar, Literal
from uuid import UUID

import attrs
import pytest

from sqlqueue import Broker, ColumnSpec, DeclarationError, JsonCodec
from sqlqueue.errors import DecodeError, EncodeError
from sqlqueue.outcome import describe_error
from sqlqueue.retry import Exponential
from sqlqueue.roles import Role
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue, task_table
from sqlqueue.steps.catalogue import Catalogue, UnknownStep
from sqlqueue.steps.shape import MOST_LEFT, LeftAlone
from sqlqueue.testing.contract.step_kinds import GREETER, Count, Greet, Part, Read

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)


class Ends(Step):
    def run(self, context: StepContext) -> Next:
        return Next.done()


@attrs.frozen
class Undecorated(Part):
    """A step, and its subclass that is not decorated itself."""


class Sub(Undecorated):
    more: int


@attrs.frozen
class Abstract(Step):
    pass


@attrs.frozen
class Awaited(Step):
    async def run(self, context: StepContext) -> Next:  # type: ignore[override]
        return Next.done()


@attrs.frozen
class Often(Part):
    retry_limit: ClassVar[int] = -1


@attrs.frozen
class Backwards(Part):
    retry_delay: ClassVar[Any] = timedelta(seconds=-1)


def with_field(name: str, default: Any, **settings: Any) -> type[Step]:
    """A step that declares `name` without ClassVar."""
    body = {"__annotations__": {name: type(default)}, name: default}
    return attrs.frozen(type("Forgot", (Part,), body), **settings)


@attrs.define
class Counts(Part):
    url: str
    seen: int = attrs.field(init=False, default=0)


@attrs.frozen
class Animal:
    name: str


@attrs.frozen
class Dog(Animal):
    bark: int = 0


@attrs.frozen
class Walk(Part):
    who: Animal | None
    others: tuple[Animal, ...] = ()


@attrs.frozen
class Own(Part):
    who: Animal | None


@dataclasses.dataclass
class Point:
    x: int
    y: int


@attrs.frozen
class Keep(Part):
    point: Point


@attrs.frozen
class Named(Part):
    name: str = ""


@attrs.frozen
class Typed(Part):
    number: int
    text: str = ""
    choice: Literal["a", "b"] = "a"
    several: list[int] = attrs.field(factory=list)


@attrs.frozen
class Unsure(Part):
    transactional: ClassVar[Any] = "no"


@attrs.frozen
class Yields(Part):
    def run(self, context: StepContext) -> Any:
        yield Next.done()


@attrs.frozen
class Unreadable(Part):
    thing: Callable[[], int]


@attrs.frozen
class Rich(Step):
    moment: datetime
    amount: Decimal
    ids: list[UUID]
    raw: bytes
    _private: int = 3
    tags: frozenset[str] = frozenset()
    kept: ClassVar[int] = 5

    def run(self, context: StepContext) -> Next:
        return Next.done()


@attrs.frozen
class Nested(Step):
    fields: dict[str, int]

    def run(self, context: StepContext) -> Next:
        return Next.done()


def read(kinds: Catalogue, stored: bytes) -> Step:
    kind, fields = kinds.decode(stored)
    return kind.read(fields)


def catalogue(*steps: type[Step], **settings: Any) -> Catalogue:
    return Catalogue([Task("T", steps, **settings)], JsonCodec())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Task("", [Part]), r"a task is named ''"),
        (lambda: Task(7, [Part]), r"a task is named 7"),  # type: ignore[arg-type]
        (lambda: Task("T", []), r"task 'T' has no steps"),
        (lambda: Task("T", [Part()]), r"is no step; give classes that derive from"),  # type: ignore[list-item]
        (lambda: Task("T", [int]), r"int'> is no step"),  # type: ignore[list-item]
        (lambda: Task("T", [Ends]), r"step Ends is no attrs class.*@attrs.frozen"),
        (lambda: Task("T", [Sub]), r"step Sub is no attrs class"),
        (lambda: Task("T", [Abstract]), r"step Abstract has no run"),  # type: ignore[type-abstract]
        (lambda: Task("T", [Awaited]), r"step Awaited: run is a coroutine"),
        (lambda: Task("T", [Often]), r"step Often: retry_limit is -1"),
        (lambda: Task("T", [Backwards]), r"step Backwards: retry_delay=.*give seconds from 0 up"),
        (lambda: Task("T", [Yields]), r"step Yields: run is a coroutine or generator"),
        (lambda: Task("T", [Counts]), r"step Counts: its field seen has init=False, so it is not stored"),
        (lambda: Task("T", [Unsure]), r"step Unsure: transactional is 'no'; give True or False"),
        *[
            (
                lambda name=name, default=default, slots=slots: Task("T", [with_field(name, default, slots=slots)]),
                rf"step Forgot: {name} is one of its fields.*write {mend}",
            )
            for slots in (True, False)
            for name, default, mend in (
                ("retry_limit", 5, r"retry_limit: ClassVar\[int\] = 5"),
                ("retry_delay", 0.5, r"retry_delay: ClassVar\[float\] = 1.0"),
                ("transactional", False, r"transactional: ClassVar\[bool\] = True"),
                ("run", 5, r"def run\(self, context\)"),
            )
        ],
        (lambda: Task("T", [Part, Part]), r"two of its steps are called Part"),
        (lambda: Task("T", Part), r"a task's steps are <class .*Part'>; give a list of classes"),  # type: ignore[arg-type]
        (lambda: Task("T", None), r"a task's steps are None"),  # type: ignore[arg-type]
        (lambda: Task("T", "Part"), r"a task's steps are 'Part'"),  # type: ignore[arg-type]
        (lambda: Task("T", [Part], aliases=["Old"]), r"aliases=\['Old'\]; give former names"),  # type: ignore[arg-type]
        *[
            (
                lambda alias=alias: Task("T", [Part], aliases={alias: Part}),
                r"the alias .* names no step; give",
            )
            for alias in ("", "Old.", ".Old", Part, 5)
        ],
        (lambda: Task("T", [Part], aliases={"Old": Read}), r"the alias 'Old' is for .*Read'>, which is none"),
        (lambda: Task("T", [Part, Read], aliases={"Part": Read}), r"the alias 'Part' is the name of one of its steps"),
        (lambda: catalogue(Unreadable), r"step Unreadable of task 'T': its fields cannot be read back"),
    ],
)
def test_a_mistake_in_a_task_is_found_where_it_is_declared(make: Callable[[], object], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        make()


@pytest.mark.parametrize(
    ("tasks", "settings", "said"),
    [
        ([], {}, r"tasks= is empty"),
        ([Part], {}, r"tasks= holds <class .*Part'>; give a list of sqlqueue.steps.Task"),
        ([GREETER, Task("Other", [Part])], {}, r"step Part belongs to task 'Greeter' and to 'Other'"),
        ([GREETER, Task("Greeter", [Count])], {"table": "a.b"}, r"give the bare name of one table"),
        ([GREETER, Task("O", [Count], aliases={"Greeter.Read": Count})], {}, r"two steps are called 'Read'"),
        (GREETER, {"table": task_table(), "schema": "app"}, r"schema='app' is given beside a declared table"),
        (GREETER, {"workers": 0}, r"^table 'pg_task': workers is 0"),
        (GREETER, {"on_step": 5}, r"on_step=5 cannot be called; give a function that takes a StepRun"),
        (GREETER, {"lease": 0}, r"lease is 0"),
        (GREETER, {"adopt_after": 0}, r"adopt_after is 0, which would take running tasks"),
    ],
)
def test_a_mistake_in_a_queue_of_tasks_is_found_where_it_is_made(
    tasks: Any, settings: dict[str, Any], said: str
) -> None:
    with Broker("sqlite://") as broker, pytest.raises(DeclarationError, match=said):
        TaskQueue(broker, tasks, **settings)


@pytest.mark.parametrize("role", [Role.PAYLOAD, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING, Role.ERROR, Role.LEASE])
def test_a_table_that_cannot_hold_tasks_is_refused(role: Role) -> None:
    spec = task_table()
    less = attrs.evolve(spec, columns=[column for column in spec.columns if column.role is not role])
    with (
        Broker("sqlite://") as broker,
        pytest.raises(DeclarationError, match=rf"need a column for the role '{role.value}'"),
    ):
        TaskQueue(broker, [GREETER], table=less)


@pytest.mark.parametrize(
    ("role", "type"), [(Role.GROUP, str), (Role.PARTITION_KEY, str), (Role.PROCESSED_AT, datetime)]
)
def test_a_table_that_promises_what_tasks_do_not_keep_is_refused(role: Role, type: type) -> None:
    more = ColumnSpec(field="more", type=type, optional=True, role=role)
    spec = attrs.evolve(task_table(), columns=(*task_table().columns, more))
    with (
        Broker("sqlite://") as broker,
        pytest.raises(DeclarationError, match=rf"its column 'more' has the role '{role.value}', which .* do not serve"),
    ):
        TaskQueue(broker, [GREETER], table=spec)


def test_a_step_comes_back_as_it_went() -> None:
    kinds = catalogue(Rich, Nested, Part)
    rich = Rich(NOW, Decimal("1.10"), [UUID(int=1)], b"\0\xff", private=7, tags=frozenset("ab"))
    for step in (rich, Nested({"a": 1}), Nested({}), Part()):
        kind, fields = kinds.decode(kinds.encode(step))
        assert kind.read(fields) == step


def test_the_json_is_that_of_pg_task() -> None:
    kinds = Catalogue([GREETER], JsonCodec())
    assert kinds.encode(Read("name.txt")) == b'{"Greeter":{"Read":{"filename":"name.txt"}}}'
    assert kinds.encode(Greet("Zoë")).decode() == '{"Greeter":{"Greet":{"name":"Zoë"}}}'
    assert kinds.encode(Part()) == b'{"Greeter":{"Part":null}}'


@pytest.mark.parametrize(
    ("stored", "step"),
    [
        ('{"T": {"Nested": {"fields": {"a": 1}}}}', Nested({"a": 1})),
        ('{"T": {"Count": 3}}', Count(3)),
        ('{"T": {"Count": null}}', Count(None)),
        ('{"T": {"Own": {"who": {"name": "rex"}}}}', Own(Animal("rex"))),
        ('{"T": {"Own": {"name": "rex", "age": 3}}}', Own(Animal("rex"))),
        ('{"T": {"Own": null}}', Own(None)),
        ('{"T": {"Keep": {"x": 1, "y": 2}}}', Keep(Point(1, 2))),
        ('{"T": {"Named": "n"}}', Named("n")),
        ('{"T": {"Named": {}}}', Named()),
        ('{"T": {"Named": {"former": "n"}}}', Named()),
    ],
)
def test_a_bare_value_is_the_only_fields(stored: str, step: Step) -> None:
    """As Rust writes a struct of one unnamed field."""
    kind, fields = catalogue(Nested, Count, Own, Keep, Named).decode(stored)
    assert kind.read(fields) == step


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ('{"T": {"Rich": 3}}', "it is no object of fields"),
        ('{"T": {"Part": 3}}', "it is no object of fields"),
        ('{"T": {"Rich": [1, 2]}}', "it is no object of fields"),
        ('{"T": {"Nested": {"renamed": {"a": 1}}}}', "fields: it is missing"),
        ('{"T": {"Nested": {"a": 1}}}', "fields: it is missing"),
        ('{"T": {"Own": {"renamed": {"name": "rex"}}}}', "who: it is missing"),
        ('{"T": {"Own": {"name": 5}}}', "who.name: 5 is no str"),
        ('{"T": {"Keep": {"point": {"x": 1, "y": "2"}}}}', "point.y: '2' is no int"),
        ('{"T": {"Named": {"name": null}}}', "name: None is no str"),
    ],
)
def test_a_field_that_was_renamed_is_never_read_as_the_value_of_another(stored: str, said: str) -> None:
    kind, fields = catalogue(Rich, Part, Nested, Own, Keep, Named).decode(stored)
    with pytest.raises(DecodeError, match=rf"of task T does not decode from .*: .*{said}"):
        kind.read(fields)


def test_a_step_that_cannot_be_stored_says_which_and_why() -> None:
    kinds = catalogue(Rich)
    with pytest.raises(EncodeError, match=r"step Rich of task T cannot be stored as JSON.*amount|str.*is_nan"):
        kinds.encode(Rich(NOW, "1.10", [], b""))  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"Part\(\) is no step of this queue's tasks; its steps are Rich"):
        kinds.encode(Part())


def test_what_does_not_decode_is_told_by_its_text_and_its_fields() -> None:
    kinds = catalogue(Typed)
    for stored, said in (
        (b"n\xc3\xb6", "the step is no JSON (Expecting value: line 1 column 1 (char 0)): n\u00f6"),
        (b'"x"', 'the step is not of the form {task: {step: fields}}: "x"'),
        (
            b'{"T": {"Typed": {"text": 5, "several": [1, "\xc3\xb6"]}}}',
            'step Typed of task T does not decode from {"text": 5, "several": [1, "\u00f6"]}: number: it is missing; '
            "text: 5 is no str; several[1]: '\u00f6' is no int",
        ),
    ):
        with pytest.raises(DecodeError) as refused:
            read(kinds, stored)
        assert describe_error(refused.value) == f"sqlqueue.errors.DecodeError: {said}"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (Typed("5"), r"number: '5' is no int"),  # type: ignore[arg-type]
        (Typed(True), r"number: True is no int"),
        (Typed(5, None), r"text: None is no str"),  # type: ignore[arg-type]
        (Typed(5, "x", "c"), r"choice: c not in literal"),  # type: ignore[arg-type]
        (Typed("5", None), r"number: '5' is no int; text: None is no str"),  # type: ignore[arg-type]
        (Typed(5, several=[1, "2"]), r"several\[1\]: '2' is no int"),  # type: ignore[list-item]
    ],
)
def test_a_step_that_could_not_be_read_back_is_refused_where_it_is_made(step: Step, said: str) -> None:
    kinds = catalogue(Typed)
    with pytest.raises(EncodeError, match=rf"step Typed of task T cannot be stored, for it would not .*{said}.*; give"):
        kinds.encode(step)


@pytest.mark.parametrize("step", [Walk(Dog("rex", 7)), Walk(None, (Dog("rex", 7),))])
def test_an_object_that_would_lose_what_its_class_adds_is_refused(step: Step) -> None:
    kinds = catalogue(Walk)
    with pytest.raises(EncodeError, match=r"Dog\(name='rex', bark=7\) would come back as the Animal that is declared"):
        kinds.encode(step)
    kind, fields = kinds.decode(kinds.encode(Walk(Animal("rex"))))
    assert kind.read(fields) == Walk(Animal("rex"))


def test_names_that_are_not_known_are_told_from_what_is_no_step() -> None:
    kinds = catalogue(Part, aliases={"Old": Part})
    for stored in ('{"T": {"New": null}}', '{"U": {"Part": null}}'):
        with pytest.raises(UnknownStep, match=r"is not known here"):
            kinds.decode(stored)
    for stored in ("", "null", "[]", '"Part"', '{"T": "Part"}', '{"T": {}}', '{"T": {"Part": NaN}}', "{"):
        with pytest.raises(DecodeError, match=r"the step is no"):
            kinds.decode(stored)
    assert kinds.decode('{"T": {"Old": null}}')[0].step is Part
    assert [kind.step for kind in kinds.called("Old")] == [kind.step for kind in kinds.called("T.Part")] == [Part]
    assert kinds.called("U.Part") == []


def test_a_step_has_the_limits_that_it_declares() -> None:
    @attrs.frozen
    class Patient(Part):
        retry_limit: ClassVar[int] = 3
        retry_delay: ClassVar[Any] = Exponential(first=2, jitter=0)

    plain, patient = catalogue(Part, Patient)
    assert (plain.rules.max_attempts, plain.rules.retry.delay(1, ValueError())) == (1, 1.0)
    assert (patient.rules.max_attempts, patient.rules.retry.delay(2, ValueError())) == (4, 4.0)


def test_so_many_rows_are_left_alone_and_each_for_its_while() -> None:
    left = LeftAlone()
    later = NOW + timedelta(seconds=60)
    assert all(left.leave(id, NOW, later) for id in range(MOST_LEFT))
    assert not left.leave("one more", NOW, later)
    assert len(left.ids(NOW)) == MOST_LEFT
    assert left.ids(later) == []
    assert left.leave("one more", later, later + timedelta(seconds=60))
    assert left.ids(later) == ["one more"]


def test_a_class_that_is_no_table_is_refused() -> None:
    with Broker("sqlite://") as broker, pytest.raises(DeclarationError, match=r"describes no table"):
        TaskQueue(broker, [GREETER], table=int)
