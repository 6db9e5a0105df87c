"""A handler: a function and how to run it. Every mistake raises where the handler is registered."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_origin, get_type_hints

import attrs

from sqlqueue.clock import HostClock, later, seconds
from sqlqueue.delivery import Delivery
from sqlqueue.destination import Destination, matches
from sqlqueue.errors import DeclarationError
from sqlqueue.publisher import Publisher
from sqlqueue.retry import DEFAULT_RETRY, NoRetry, RetryPolicy, policy
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec
from sqlqueue.strategies.plan import ShapeMaker

#: The names of a handler's parameters, for single messages and for batches.
FORM, BATCH_FORM = ("message", "delivery"), ("messages", "deliveries")

#: The largest number that every database takes.
MOST = 2**63 - 1

#: The shortest lease, in seconds.
SHORTEST_LEASE = 0.1


@attrs.frozen(kw_only=True)
class Handler:
    """A registered handler.

    `kind` is the annotated type of its message, Any where there is none; with a `batch`, of each of its messages.
    `reply_to`: where what it returns is published, a URL of its broker's or a publisher; None where it does not reply.
    `lease`, `poll_interval`: seconds. `stepping`: what makes its rows tasks. `runner`: makes the runner, in place of
    the consumer's own. `channels`: what it listens on, whatever the broker's `notify` says.
    """

    function: Callable[..., Any]
    name: str
    kind: Any
    takes_delivery: bool
    workers: int
    by_key: bool
    prefetch: int
    transactional: bool
    max_attempts: int | None
    dead_letter: Destination | None
    retry: RetryPolicy
    on_decode_error: RetryPolicy
    lease: float
    poll_interval: float
    batch: int | None = None
    reply_to: Publisher | str | None = None
    stepping: ShapeMaker | None = None
    runner: Callable[..., Any] | None = None
    channels: tuple[str, ...] = ()

    def check(self, queue: Any) -> None:
        """Let the function refuse the queue: one that is not for every queue has a `check_queue(queue, handler)`, which
        raises."""
        check = getattr(self.function, "check_queue", None)
        if check is not None:
            check(queue, self)


def whole(value: Any, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DeclarationError(f"{what} is {value!r}; give a whole number from {least} up")
    if value > MOST:
        raise DeclarationError(f"{what} is {value!r}, more than a database counts to; give a number up to {MOST}")
    return value


def lease_seconds(value: Any) -> float:
    try:
        lease = seconds(value, "lease")
        later(HostClock().now(), lease, "lease")
    except ValueError as error:
        raise DeclarationError(str(error)) from None
    if lease < SHORTEST_LEASE:
        raise DeclarationError(f"lease is {value!r}; give seconds from {SHORTEST_LEASE} up")
    return lease


def poll_seconds(value: Any) -> float:
    return some_seconds(value, "poll_interval", "would claim without pause")


def some_seconds(value: Any, what: str, effect: str) -> float:
    """Seconds above 0; `effect` is what 0 would do."""
    try:
        taken = seconds(value, what)
    except ValueError as error:
        raise DeclarationError(str(error)) from None
    if not taken:
        raise DeclarationError(f"{what} is 0, which {effect}; give seconds above 0")
    return taken


def publisher_of(given: Any, opened: Callable[[str], Publisher], what: str) -> Publisher:
    """A publisher, or the one to its URL, by `opened`; `DeclarationError` for what nothing can be published with."""
    publisher: Publisher = opened(given) if isinstance(given, str) else given
    can = all(callable(getattr(publisher, name, None)) for name in ("publish", "close"))
    if not can or isinstance(publisher, type):
        raise DeclarationError(
            f"{what}={given!r} is no publisher; give a URL, or an object with publish(messages) and close(), which a "
            "queue has as sqlqueue.relay.QueuePublisher(queue)"
        )
    return publisher


@attrs.frozen(kw_only=True)
class Settings:
    """The options of `Queue.handler`, as they are given."""

    workers: int = 1
    by_key: bool = False
    prefetch: int = 0
    batch: int | None = None
    transactional: bool = False
    max_attempts: int | None = None
    dead_letter: Any = None
    retry: Any = attrs.Factory(lambda: attrs.NOTHING)
    on_decode_error: Any = attrs.Factory(lambda: attrs.NOTHING)
    lease: Any = None
    poll_interval: Any = None
    reply_to: Publisher | str | None = None

    def __attrs_post_init__(self) -> None:
        if self.batch is not None and self.transactional:
            raise DeclarationError(
                f"batch={self.batch!r} beside transactional=True: a transaction commits one row with what its handler "
                "wrote; leave out one of the two"
            )


def make_handler(
    function: Callable[..., Any],
    spec: TableSpec,
    given: Settings,
    *,
    lease: float,
    poll_interval: float,
    dead_letter: Destination | None = None,
) -> Handler:
    """Check a handler's function and settings against its table; `DeclarationError` for what cannot work.

    `lease`, `poll_interval`: the broker's, for settings that name none. `dead_letter`: what the setting stands for.
    """
    name = getattr(function, "__qualname__", None) or repr(function)
    where = f"table {spec.name!r}, handler {name}"
    _check_settings(spec, given, where)
    if dead_letter is not None and not dead_letter.is_in(spec):
        matches(spec, dead_letter)
    batch = None if given.batch is None else whole(given.batch, f"{where}: batch", 1)
    takes_delivery, kind = signature_of(function, where, FORM if batch is None else BATCH_FORM)
    kind = kind if batch is None else _element(kind, where)
    _check_kind(spec, kind, where)
    return Handler(
        function=function,
        name=name,
        kind=kind,
        takes_delivery=takes_delivery,
        workers=whole(given.workers, f"{where}: workers", 1),
        by_key=given.by_key,
        prefetch=whole(given.prefetch, f"{where}: prefetch", 0),
        transactional=bool(given.transactional),
        max_attempts=None if given.max_attempts is None else whole(given.max_attempts, f"{where}: max_attempts", 1),
        dead_letter=dead_letter,
        retry=_policy(given.retry, DEFAULT_RETRY, f"{where}: retry"),
        on_decode_error=_policy(given.on_decode_error, NoRetry(), f"{where}: on_decode_error"),
        lease=lease_seconds(lease if given.lease is None else given.lease),
        poll_interval=poll_seconds(poll_interval if given.poll_interval is None else given.poll_interval),
        batch=batch,
        reply_to=given.reply_to,
    )


def _check_settings(spec: TableSpec, given: Settings, where: str) -> None:
    if given.max_attempts is not None and not spec.has(Role.ATTEMPT):
        raise DeclarationError(f"{where}: max_attempts needs a column that counts; mark one with column.attempt()")
    if given.by_key and not spec.has(Role.PARTITION_KEY):
        raise DeclarationError(f"{where}: by_key needs a key; mark a column with column.partition_key()")
    if given.transactional and given.prefetch:
        raise DeclarationError(
            f"{where}: prefetch={given.prefetch} beside transactional, whose rows hold a connection each"
        )
    isolation = spec.isolation
    if given.transactional and spec.has(Role.LEASE) and isolation and isolation.upper() != "READ COMMITTED":
        raise DeclarationError(
            f"{where}: transactional with a lease beside isolation={isolation!r}; its acknowledgement must see "
            "extensions that were committed meanwhile, which takes READ COMMITTED: leave isolation= out"
        )


def _policy(given: Any, default: RetryPolicy, what: str) -> RetryPolicy:
    try:
        return default if given is attrs.NOTHING else policy(given, default)
    except ValueError as error:
        raise DeclarationError(f"{what}={given!r}: {error}") from None


def signature_of(function: Callable[..., Any], where: str, form: tuple[str, str]) -> tuple[bool, Any]:
    """Whether the function takes the delivery as well, and the annotated type of its message. `form`: the names of
    both."""
    if not callable(function):
        raise DeclarationError(f"{where}: {function!r} cannot be called")
    called = _called(function)
    if inspect.iscoroutinefunction(called) or inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
        raise DeclarationError(f"{where}: a coroutine or generator; handlers run on threads: give a plain function")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DeclarationError(f"{where}: its signature cannot be read ({error}); wrap it in a function") from error
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    several = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    hints = _hints(called, where) if positional else {}
    no_message = not several if not positional else _is_delivery(hints.get(positional[0].name))
    if len(required) > 2 or named or no_message:
        message, delivery = form
        raise DeclarationError(
            f"{where}: takes {signature}; a handler is called as f({message}) or f({message}, {delivery})"
        )
    second = positional[1] if len(positional) > 1 else None
    takes_delivery = second is not None and (
        second in required or second.name == form[1] or _is_delivery(hints.get(second.name))
    )
    kind = hints.get(positional[0].name, Any) if positional else Any
    return takes_delivery, kind


def _element(kind: Any, where: str) -> Any:
    """The type of one message, from the type of the list that the handler of a batch takes."""
    if kind in (Any, object):
        return Any
    base = get_origin(kind) or kind
    if not (isinstance(base, type) and issubclass(list, base)):
        name = getattr(kind, "__name__", kind)
        raise DeclarationError(
            f"{where}: takes {name}, and a batch is a list; annotate list[{name}], or leave batch out to take them one "
            "at a time"
        )
    (one,) = get_args(kind) or (Any,)
    return one


def _is_delivery(hint: Any) -> bool:
    return hint is Delivery or Delivery in get_args(hint)  # Python 3.10 adds None where that is the default


def _called(function: Any) -> Any:
    """The function that runs when `function` is called. It carries the annotations."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function.__init__  # type: ignore[misc]  # it is asked for its annotations, not called
    return function if inspect.isroutine(function) else type(function).__call__


def _hints(called: Any, where: str) -> dict[str, Any]:
    try:
        return get_type_hints(called)
    except NameError as error:
        raise DeclarationError(
            f"{where}: an annotation names {error.name!r}, which is not known in its module; import it there"
        ) from error
    except (SyntaxError, TypeError, AttributeError) as error:
        raise DeclarationError(f"{where}: its annotations cannot be read ({error}); write them as types") from error


def _check_kind(spec: TableSpec, kind: Any, where: str) -> None:
    is_row = spec.row_class is not None and kind is spec.row_class
    if spec.has(Role.PAYLOAD) and is_row:
        raise DeclarationError(
            f"{where}: takes the row {kind.__name__}, but the table has a payload, which is what a handler takes; "
            "annotate the message's type, or leave the payload unmarked"
        )
    if not spec.has(Role.PAYLOAD) and not is_row and not _could_be_row(spec, kind):
        rows = spec.row_class.__name__ if spec.row_class else "a mapping"
        raise DeclarationError(
            f"{where}: takes {getattr(kind, '__name__', kind)}, but the table has no payload column to decode: the "
            f"handler gets the row ({rows}); annotate that, or mark a column with column.payload()"
        )


def _could_be_row(spec: TableSpec, kind: Any) -> bool:
    if kind in (Any, object):
        return True
    base = getattr(kind, "__origin__", kind)
    if spec.row_class is not None:
        return isinstance(base, type) and issubclass(spec.row_class, base)
    return isinstance(base, type) and issubclass(dict, base)
