"""When a failed row is tried again: pure functions from the attempt to a delay in seconds."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import attrs

from sqlqueue.clock import Duration, seconds
from sqlqueue.errors import DecodeError


class RetryPolicy(Protocol):
    """How long a failed row waits.

    `delay(attempt, error)` returns seconds until the next delivery after the `attempt`-th (counted from 1) failed with
    `error`, or None to give the row up at once.
    """

    def delay(self, attempt: int, error: BaseException) -> float | None: ...


def _first(value: Duration) -> float:
    return seconds(value, "first")


def _most(value: Duration) -> float:
    return seconds(value, "most")


def _after(value: Duration) -> float:
    return seconds(value, "a fixed delay")


def _from_one(instance: object, attribute: "attrs.Attribute[float]", value: Any) -> None:
    if not isinstance(value, int | float) or not 1 <= value < float("inf"):
        raise ValueError(f"{attribute.name} is {value!r}; give a factor from 1 up")


def _share(instance: object, attribute: "attrs.Attribute[float]", value: Any) -> None:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{attribute.name} is {value!r}; give a share from 0 to 1")


@attrs.frozen(kw_only=True)
class Exponential:
    """`first` seconds, multiplied by `factor` for each further attempt, up to `most` seconds.

    `jitter` is the share of the delay that is drawn by chance, so that rows which failed together do not return
    together: 0.5 means between half of the delay and all of it.
    """

    first: float = attrs.field(default=1.0, converter=_first)
    factor: float = attrs.field(default=2.0, validator=_from_one)
    most: float = attrs.field(default=3600.0, converter=_most)
    jitter: float = attrs.field(default=0.5, validator=_share)

    def delay(self, attempt: int, error: BaseException | None = None) -> float:
        try:
            full = min(self.most, self.first * self.factor ** (max(attempt, 1) - 1))
        except OverflowError:
            full = self.most if self.first else 0.0
        return full * (1 - self.jitter * random.random())  # noqa: S311 - spreads load, guards nothing


@attrs.frozen
class Fixed:
    """`after` (seconds or timedelta) between all attempts."""

    after: float = attrs.field(converter=_after)

    def delay(self, attempt: int, error: BaseException | None = None) -> float:
        return self.after


@attrs.frozen
class NoRetry:
    """A failure is final: the row goes to its dead letter, is parked, or dropped."""

    def delay(self, attempt: int, error: BaseException | None = None) -> None:
        return None


@attrs.frozen
class Computed:
    """A function of the user's: `function(attempt, error)` returns seconds, a timedelta, or None to give up."""

    function: Callable[[int, BaseException], Duration | None]

    def delay(self, attempt: int, error: BaseException) -> float | None:
        after = self.function(attempt, error)
        return None if after is None else seconds(after, "the retry function's delay")


@attrs.frozen
class ByException:
    """The policy of the exception's class, or of the nearest of its base classes that has one; else `otherwise`.

    A `DecodeError` goes by the class of what it came from, such as `json.JSONDecodeError`, before its own.
    """

    policies: Mapping[type[BaseException], RetryPolicy]
    otherwise: RetryPolicy

    def delay(self, attempt: int, error: BaseException) -> float | None:
        for kind in _kinds(error):
            if kind in self.policies:
                return self.policies[kind].delay(attempt, error)
        return self.otherwise.delay(attempt, error)


def _kinds(error: BaseException) -> Iterator[type]:
    """The classes by which an error is looked up. Those that a cause shares with it, such as `Exception`, come last:
    they say nothing of the cause."""
    own = type(error).__mro__
    cause = error.__cause__ if isinstance(error, DecodeError) else None
    if cause is not None:
        yield from (kind for kind in type(cause).__mro__ if kind not in own)
    yield from own


#: 1 s doubling to 1 h, for ever.
DEFAULT_RETRY = Exponential()


def policy(given: Any, otherwise: RetryPolicy = DEFAULT_RETRY) -> RetryPolicy:
    """The policy that `retry=` stands for: a policy, a function of attempt and exception, a fixed delay, None for no
    retry, or a mapping from exception classes to any of these, with `otherwise` for all other exceptions.

    Anything else is a `ValueError`.
    """
    if given is None:
        return NoRetry()
    if isinstance(given, type):
        raise ValueError(f"{given.__qualname__} is a class; give an object of it, such as {given.__qualname__}()")
    if isinstance(given, Mapping):
        return ByException({_exception(kind): policy(one, otherwise) for kind, one in given.items()}, otherwise)
    if hasattr(given, "delay"):
        taken: RetryPolicy = given
        return taken
    if callable(given):
        return Computed(given)
    return Fixed(given)


def _exception(kind: Any) -> type[BaseException]:
    if not isinstance(kind, type) or not issubclass(kind, BaseException):
        raise ValueError(f"{kind!r} is no exception class; give classes of exceptions as keys")
    return kind
