"""Handle: what a handler returned, before it counts: nothing that it only promised to do is taken for done."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from sqlqueue.handler import Handler
from sqlqueue.settling import describe_value

#: Takes a message and its delivery, or a list of each where the handler takes batches.
Call = Callable[[Any, Any], Any]


def caller(handler: Handler) -> Call:
    """The handler's function as one that always takes the delivery, or the deliveries of a batch, and that raises where
    it returned what was not done."""
    function = handler.function
    if handler.stepping is not None:  # what a step returns, its runner reads
        return function
    check = answer if handler.batch is None else answers

    def with_delivery(message: Any, delivery: Any) -> Any:
        returned = function(message, delivery)
        return None if returned is None else check(returned)

    def with_message(message: Any, _: Any) -> Any:
        returned = function(message)
        return None if returned is None else check(returned)

    return with_delivery if handler.takes_delivery else with_message


def answer(returned: Any) -> Any:
    """What a handler returned for one row: its outcome, its replies, or something else.

    An exception's class stands for an instance of it, as in `raise`. Raises `TypeError` for what would be done only by
    somebody who awaited it or read it, and for an outcome among other things, which nobody would look for there.
    """
    if isinstance(returned, BaseException):
        return returned
    if _is_exception_class(returned):
        return returned()
    parts = flat(returned)
    problems = [problem for part in parts for problem in [_problem(part, among=part is not returned)] if problem]
    if problems:
        raise TypeError(f"the handler returned {describe_value(returned)}, which {problems[0]}")
    return returned


def answers(returned: Any) -> Any:
    """What a handler returned for its batch; the error of a row's answer stands for that row's outcome."""
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        return answer(returned)
    return [None if one is None else _answer_or_error(one) for one in returned]


def _answer_or_error(returned: Any) -> Any:
    try:
        return answer(returned)
    except Exception as error:  # noqa: BLE001 - a class of the user's may need arguments; it keeps no other row
        return error


def flat(returned: Any) -> Sequence[Any]:
    """The parts of what a handler returned for one row; a named tuple is one."""
    if type(returned) not in (list, tuple):
        return () if returned is None else (returned,)
    return [one for part in returned for one in flat(part)]


def _problem(part: Any, *, among: bool) -> str | None:
    """Why what a handler returned is not done; it is closed, so that Python does not warn of it as well."""
    if inspect.iscoroutine(part):
        part.close()
    if inspect.isawaitable(part):
        return "nobody awaits: handlers run on threads; give a plain function, such as one that calls asyncio.run"
    if inspect.isgenerator(part) or inspect.isasyncgen(part):
        return "nobody reads, so that it never began: return None, an outcome, or a list"
    if among and (isinstance(part, BaseException) or _is_exception_class(part)):
        return f"has the outcome {part!r} inside: return or raise that by itself"
    return None


def _is_exception_class(returned: Any) -> bool:
    return isinstance(returned, type) and issubclass(returned, BaseException)
