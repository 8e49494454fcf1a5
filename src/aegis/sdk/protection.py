"""Any Python callable as a tool: decided before its body runs, its result observed after."""

from __future__ import annotations

import copy
import functools
import inspect
import io
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar, cast, overload

from msgspec import Struct

from aegis.core.call import ToolResult
from aegis.core.json import escape
from aegis.core.outcome import Outcome, Reason, message_for
from aegis.enforce.arguments import jsonable, named_arguments
from aegis.enforce.enforcement import Attempt, Enforced, Observed
from aegis.enforce.failures import failure_of
from aegis.enforce.scope import current_session, permit_context, within
from aegis.errors import ToolCallBlocked
from aegis.sdk.runtime import current_runtime

# The JSON forms of Python arguments and results, for decisions about them.

_MAX_VALUES: Final = 1_000_000  # values beyond this are not walked: they are no plain JSON then


class Argument(Struct, frozen=True, kw_only=True):
    """One final argument: what the body gets, and its JSON form where it has one.

    `plain` says that the value is its own form; `resolved` that it has a form at all.
    """

    value: Any
    form: Any
    plain: bool = True
    resolved: bool = True


def argument_of(value: Any) -> Argument:
    """The argument that a value makes."""
    if is_plain(value):
        return Argument(value=value, form=value)
    if holds_stream(value):
        return Argument(value=value, form=None, plain=False, resolved=False)
    try:
        # A copy: what was decided cannot be changed by whoever holds the original.
        value = copy.deepcopy(value)
        form = jsonable(value)
    except Exception:
        return Argument(value=value, form=None, plain=False, resolved=False)
    return Argument(value=value, form=form, plain=False)


def is_plain(root: Any) -> bool:
    """Whether a value is its own JSON form: only exact `str`, `int`, `float`, `bool`, `None`, lists and dicts."""
    return all(
        type(value) in (str, int, float, bool, type(None), list)
        or (type(value) is dict and all(type(key) is str for key in value))
        for value in _walk(root)
    )


def holds_stream(root: Any) -> bool:
    """Whether a value is, or has in its lists and dictionaries, something that can be read only once."""
    return any(isinstance(value, (Iterator, AsyncIterator, io.IOBase)) for value in _walk(root))


def described(value: Any) -> Any:
    """The JSON form of a result; what has none stands in it as text."""
    from pydantic_core import to_jsonable_python

    return value if is_plain(value) else to_jsonable_python(value, serialize_unknown=True, inf_nan_mode="constants")


def _walk(root: Any) -> Iterator[Any]:
    """Every value in lists, tuples, sets and dictionaries, from the outside in; containers once."""
    seen: set[int] = set()
    waiting = [root]
    count = 0
    while waiting:
        value = waiting.pop()
        count += 1
        if count > _MAX_VALUES:
            yield iter(())  # counts as a stream, and as nothing plain
            return
        yield value
        if isinstance(value, (dict, list, tuple, set, frozenset)) and id(value) not in seen:
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)


F = TypeVar("F", bound=Callable[..., Any])

# What a method is called on is the host's, and seldom has a JSON form.
_RECEIVERS: Final = ("self", "cls")
_WORDLESS: Final = "the function failed, and what it said could not be checked, so it was withheld"
_STREAM: Final = "the result is a stream that nobody could look at, so it was withheld"


@overload
def protect(function: F) -> F: ...


@overload
def protect(*, name: str | None = None, server: str | None = None) -> Callable[[F], F]: ...


def protect(function: F | None = None, *, name: str | None = None, server: str | None = None) -> F | Callable[[F], F]:
    """Decide each call of a function before its body runs, and observe what it returns.

    The decision is about the final arguments: bound, defaulted, as JSON. Arguments that are plain JSON
    reach the body as a fresh decode of the bytes that were decided; others as a copy made before.
    Generators, streams and what has no JSON form are declared unresolved. Changed arguments and results
    take the place of the original ones. Works with sync and async functions, and with generator
    functions, whose items are observed together before the first is handed out.

    Args:
        function: the tool's body.
        name: the tool's name; by default the function's.
        server: the namespace that is part of the tool's identity.

    Raises (when called):
        ToolCallBlocked: the call may not run, or nothing of its result may be seen, or nothing of what its own
            exception says; other exceptions of the body pass as they are.
    """
    if function is None:
        return lambda one: _protected(one, name or one.__name__, server)
    return _protected(function, name or function.__name__, server)


def _protected(function: F, tool: str, server: str | None) -> F:
    guard = _Guard(function=function, tool=tool, server=server, signature=inspect.signature(function))
    if inspect.iscoroutinefunction(function):

        async def arun(*args: Any, **kwargs: Any) -> Any:
            bound, enforced = await guard.adecided(args, kwargs)
            try:
                with permit_context(enforced.decision.permit), within():
                    result = await function(*bound.args, **bound.kwargs)
            except Exception as error:
                await guard.afailed(enforced, error)
                raise
            return await guard.aobserved(enforced, result)

        return cast("F", functools.wraps(function)(arun))
    if inspect.isasyncgenfunction(function):

        async def aiterate(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            bound, enforced = await guard.adecided(args, kwargs)
            try:
                with within():
                    items = [item async for item in function(*bound.args, **bound.kwargs)]
            except Exception as error:
                await guard.afailed(enforced, error)
                raise
            for item in await guard.aobserved(enforced, items):
                yield item

        return cast("F", functools.wraps(function)(aiterate))
    if inspect.isgeneratorfunction(function):

        def iterate(*args: Any, **kwargs: Any) -> Iterator[Any]:
            bound, enforced = guard.decided(args, kwargs)
            try:
                with within():
                    items = list(function(*bound.args, **bound.kwargs))
            except Exception as error:
                guard.failed(enforced, error)
                raise
            yield from guard.observed(enforced, items)

        return cast("F", functools.wraps(function)(iterate))

    def run(*args: Any, **kwargs: Any) -> Any:
        bound, enforced = guard.decided(args, kwargs)
        try:
            with permit_context(enforced.decision.permit), within():
                result = function(*bound.args, **bound.kwargs)
        except Exception as error:
            guard.failed(enforced, error)
            raise
        return guard.observed(enforced, result)

    return cast("F", functools.wraps(function)(run))


class _Guard(Struct, frozen=True, kw_only=True):
    """One protected function."""

    function: Callable[..., Any]
    tool: str
    server: str | None
    signature: inspect.Signature

    def decided(self, args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, Enforced]:
        """The arguments that may run; raises `ToolCallBlocked`."""
        bound, arguments, attempt = self._attempt(args, kwargs)
        enforcer = current_runtime().enforcer
        (enforced,) = enforcer.run(enforcer.enforce([attempt], current_session()))
        return self._allowed(bound, arguments, enforced), enforced

    async def adecided(self, args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, Enforced]:
        """The async twin of `decided`."""
        bound, arguments, attempt = self._attempt(args, kwargs)
        enforcer = current_runtime().enforcer
        (enforced,) = await enforcer.arun(enforcer.enforce([attempt], current_session()))
        return self._allowed(bound, arguments, enforced), enforced

    def observed(self, enforced: Enforced, result: Any) -> Any:
        """What may be seen of the result; raises `ToolCallBlocked` where nothing may."""
        enforcer = current_runtime().enforcer
        (seen,) = enforcer.run(enforcer.observe([_result(enforced, result)]))
        return _visible(enforced, seen, result)

    async def aobserved(self, enforced: Enforced, result: Any) -> Any:
        """The async twin of `observed`."""
        enforcer = current_runtime().enforcer
        (seen,) = await enforcer.arun(enforcer.observe([_result(enforced, result)]))
        return _visible(enforced, seen, result)

    def failed(self, enforced: Enforced, error: Exception) -> None:
        """Raises `ToolCallBlocked` where the words of the body's exception may not be seen as they are."""
        enforcer = current_runtime().enforcer
        (seen,) = enforcer.run(enforcer.observe([_failure(enforced, error)]))
        _passable(enforced, seen)

    async def afailed(self, enforced: Enforced, error: Exception) -> None:
        """The async twin of `failed`."""
        enforcer = current_runtime().enforcer
        (seen,) = await enforcer.arun(enforcer.observe([_failure(enforced, error)]))
        _passable(enforced, seen)

    def _attempt(self, args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, dict[str, Argument], Attempt]:
        bound = self.signature.bind(*args, **kwargs)
        named = named_arguments(bound)
        arguments = {name: argument_of(value) for name, value in named.items() if name not in _RECEIVERS}
        attempt = Attempt(
            tool=self.tool,
            server=self.server,
            arguments={name: argument.form for name, argument in arguments.items()},
            unresolved=tuple(f"/{escape(name)}" for name, one in arguments.items() if not one.resolved),
            want_permit=getattr(self.function, "__aegis_permit__", False),
        )
        return bound, arguments, attempt

    def _allowed(
        self, bound: inspect.BoundArguments, arguments: dict[str, Argument], enforced: Enforced
    ) -> inspect.BoundArguments:
        if not enforced.allowed:
            raise ToolCallBlocked(enforced.decision)
        allowed = enforced.arguments()
        takes_more = any(p.kind is p.VAR_KEYWORD for p in self.signature.parameters.values())
        if allowed.keys() - arguments.keys() and not takes_more:
            raise self._misfit(enforced)
        unknown = Argument(value=None, form=None)
        try:
            values = {name: self._value(name, arguments.get(name, unknown), value) for name, value in allowed.items()}
        except Exception as error:
            raise self._misfit(enforced) from error
        return rebound(bound, values)

    @staticmethod
    def _misfit(enforced: Enforced) -> ToolCallBlocked:
        """The refusal of a call whose changed arguments the function cannot take."""
        message = message_for(Outcome.BLOCK, Reason.SCHEMA_INVALID)
        return ToolCallBlocked(
            replace(enforced.decision, outcome=Outcome.BLOCK, reason=Reason.SCHEMA_INVALID, message=message)
        )

    def _value(self, name: str, argument: Argument, allowed: Any) -> Any:
        """What the body gets for one argument of which `allowed` is the decided form."""
        if argument.plain:
            return allowed
        if allowed == argument.form:
            return argument.value
        parameter = self.signature.parameters.get(name)
        if parameter is None or parameter.annotation is inspect.Parameter.empty:
            return allowed
        from pydantic import TypeAdapter

        return TypeAdapter(inspect.get_annotations(self.function, eval_str=True)[name]).validate_python(allowed)


def rebound(bound: inspect.BoundArguments, values: dict[str, Any]) -> inspect.BoundArguments:
    """The same call with other values; what was taken away falls back to its default."""
    rebound = inspect.BoundArguments(bound.signature, OrderedDict())
    rest = dict(values)
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            if name in rest:
                rebound.arguments[name] = rest.pop(name)
            elif name in _RECEIVERS and name in bound.arguments:
                rebound.arguments[name] = bound.arguments[name]
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            rebound.arguments[name] = rest
    return rebound


def _result(enforced: Enforced, result: Any) -> ToolResult:
    if holds_stream(result):
        decision = replace(
            enforced.decision, outcome=Outcome.BLOCK, reason=Reason.INSUFFICIENT_EVIDENCE, message=_STREAM
        )
        raise ToolCallBlocked(decision)
    return ToolResult(decision_id=enforced.decision.decision_id, result=described(result))


def _failure(enforced: Enforced, error: Exception) -> ToolResult:
    try:
        return failure_of(enforced.decision, error)
    except ValueError:
        reason = Reason.INSUFFICIENT_EVIDENCE
        blocked = replace(enforced.decision, outcome=Outcome.BLOCK, reason=reason, message=_WORDLESS)
        raise ToolCallBlocked(blocked) from None


def _passable(enforced: Enforced, seen: Observed) -> None:
    if seen.changed:
        raise _withheld(enforced, seen) from None


def _visible(enforced: Enforced, seen: Observed, result: Any) -> Any:
    if seen.withheld:
        raise _withheld(enforced, seen)
    return seen.value if seen.changed else result


def _withheld(enforced: Enforced, seen: Observed) -> ToolCallBlocked:
    said = seen.decision
    return ToolCallBlocked(replace(enforced.decision, outcome=Outcome.BLOCK, reason=said.reason, message=said.message))
