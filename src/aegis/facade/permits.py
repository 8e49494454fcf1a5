"""Tools that demand a permit: they run for exactly the call that was permitted, once, or not at all.

The permit comes as the keyword `permit`, or by itself where the call went through `protect` or a hooked
framework. It never stands among the arguments that a model sees.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast, overload

from aegis.adapters._arguments import named_arguments
from aegis.adapters.context import current_permit, permit_context
from aegis.core.canonical import canonical
from aegis.core.strict_json import parse
from aegis.errors import AegisError, PermitInvalid
from aegis.facade.forms import Argument, argument_of
from aegis.facade.protection import rebound
from aegis.facade.runtime import current_runtime

R = TypeVar("R")

_RECEIVERS: Final = ("self", "cls")


class PermitVerifier(Protocol):
    """Whoever redeems permits: `Client` (at the gateway), `Gate` (embedded) or `OfflinePermits` (once per verifier)."""

    def redeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """Use up a permit for exactly this call and return its identifier; raises `PermitInvalid`."""
        ...

    async def aredeem(self, permit: str, *, tool: str, arguments: dict[str, Any], server: str | None = None) -> str:
        """`redeem` for event loops."""
        ...


@overload
def require_permit(function: Callable[..., R]) -> Callable[..., R]: ...


@overload
def require_permit(
    *, verifier: PermitVerifier | None = None, name: str | None = None, server: str | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]: ...


def require_permit(
    function: Callable[..., R] | None = None,
    *,
    verifier: PermitVerifier | None = None,
    name: str | None = None,
    server: str | None = None,
) -> Callable[..., R] | Callable[[Callable[..., R]], Callable[..., R]]:
    """Let a tool run only with a permit for exactly these arguments, which is used up before the body runs.

    Works with sync and async functions. Arguments that are plain JSON reach the body as a fresh decode of the
    bytes that were verified.

    Args:
        function: the tool's body.
        verifier: who redeems; by default the gateway (or embedded gate) of this process.
        name: the tool's name; by default the function's.
        server: the namespace that is part of the tool's identity.

    Raises (when called):
        PermitInvalid: there is no permit, or it does not cover this call, or it was used before.
    """
    if function is None:
        return lambda one: _guarded(one, verifier, name or one.__name__, server)
    return _guarded(function, verifier, name or function.__name__, server)


def _guarded(
    function: Callable[..., R], verifier: PermitVerifier | None, tool: str, server: str | None
) -> Callable[..., R]:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"`{tool}` is a generator: its body runs later than its permit is checked")
    signature = inspect.signature(function)

    def prepared(args: Any, kwargs: Any) -> tuple[inspect.BoundArguments, dict[str, Any], str]:
        permit = kwargs.pop("permit", None) if "permit" not in signature.parameters else None
        permit = permit or current_permit()
        if not isinstance(permit, str) or not permit:
            raise PermitInvalid(
                f"`{tool}` runs only with a permit", code="permit_missing", hint="ask for the call first"
            )
        bound = signature.bind(*args, **kwargs)
        forms = {key: argument_of(value) for key, value in named_arguments(bound).items() if key not in _RECEIVERS}
        arguments = parse(canonical({key: one.form for key, one in forms.items()}))
        if not all(one.resolved for one in forms.values()):
            raise PermitInvalid(f"an argument of `{tool}` has no JSON form that a permit could cover")
        return rebound(bound, {key: _value(one, arguments[key]) for key, one in forms.items()}), arguments, permit

    if inspect.iscoroutinefunction(function):

        async def arun(*args: Any, **kwargs: Any) -> Any:
            bound, arguments, permit = prepared(args, kwargs)
            await _verifier(verifier).aredeem(permit, tool=tool, arguments=arguments, server=server)
            with permit_context(None):
                return await function(*bound.args, **bound.kwargs)

        return _marked(function, arun)  # type: ignore[arg-type]  # R is the coroutine itself

    def run(*args: Any, **kwargs: Any) -> Any:
        bound, arguments, permit = prepared(args, kwargs)
        _verifier(verifier).redeem(permit, tool=tool, arguments=arguments, server=server)
        with permit_context(None):
            return function(*bound.args, **bound.kwargs)

    return _marked(function, run)


def _marked(function: Callable[..., R], wrapper: Callable[..., Any]) -> Callable[..., R]:
    wrapped = functools.wraps(function)(wrapper)
    wrapped.__aegis_permit__ = True  # type: ignore[attr-defined]  # `protect` asks for a permit where it stands
    return wrapped


def _value(argument: Argument, verified: Any) -> Any:
    return verified if argument.plain else argument.value


def _verifier(given: PermitVerifier | None) -> PermitVerifier:
    found: Any = given if given is not None else current_runtime().enforcer.decider
    if not hasattr(found, "redeem"):
        raise AegisError("the decider of this process redeems no permits; name a `verifier`")
    return cast("PermitVerifier", found)
