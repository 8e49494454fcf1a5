"""Tools that demand a permit: they run for exactly the call that was permitted, once, or not at all.

The permit comes as the keyword `permit`, or by itself where the call went through `protect` or a hooked
framework. It never stands among the arguments that a model sees.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any, Final, Protocol, TypeVar, cast, overload

import orjson

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.enforce.arguments import named_arguments
from aegis.enforce.scope import current_permit, permit_context
from aegis.errors import AegisError, InvalidCall, PermitInvalid
from aegis.sdk.protection import Argument, argument_of, rebound
from aegis.sdk.runtime import current_runtime

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


# A tool server that demands permits: every request is one call, and its body is exactly the call's arguments.
#
# (1) the path names the tool, and nothing but the body carries arguments
# (2) the body is bounded, strict JSON
# (3) the permit of the header is redeemed for exactly this call
# (4) the application gets the very bytes that were verified

HEADER: Final = b"aegis-permit"
MAX_BYTES: Final = 4 * 1_048_576

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class PermitMiddleware:
    """An ASGI application behind permits, which come in the header `Aegis-Permit`.

    Args:
        app: the tool server.
        verifier: who redeems permits: a `Client` with a key of the role `tool`, or `OfflinePermits`.
        tools: the tool that each path is.
        server: the namespace that is part of the tools' identity.
        open_paths: paths that run nothing, such as a health check.
        max_bytes: how large a body may be.

    Every other path is refused, and so is a web socket. Refusals have the shape
    `{"error": {"code", "message", "hint"}}`.
    """

    def __init__(
        self,
        app: Application,
        *,
        verifier: PermitVerifier,
        tools: Mapping[str, str],
        server: str | None = None,
        open_paths: Collection[str] = (),
        max_bytes: int = MAX_BYTES,
    ):
        self._app = app
        self._verifier = verifier
        self._tools = dict(tools)
        self._server = server
        self._open = frozenset(open_paths)
        self._max_bytes = max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or (scope["type"] == "http" and scope["path"] in self._open):
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        try:
            body = await self._verified(scope, receive)
        except AegisError as error:
            await _refuse(send, error)
            return
        await self._app(_with_length(scope, len(body)), _once(body, receive), send)  # (4)

    async def _verified(self, scope: Message, receive: Receive) -> bytes:
        # (1)
        tool = self._tools.get(scope["path"])
        if tool is None or scope["method"] != "POST" or scope["query_string"]:
            raise PermitInvalid("no tool answers such a request", code="no_tool")
        permits = [value for name, value in scope["headers"] if name.lower() == HEADER]
        if len(permits) != 1:
            raise PermitInvalid("this tool runs only with a permit", code="permit_missing", hint="send `Aegis-Permit`")
        # (2)
        arguments = parse(await self._read(receive))
        if not isinstance(arguments, dict):
            raise InvalidCall("the body is no JSON object")
        # (3)
        await self._verifier.aredeem(permits[0].decode("latin-1"), tool=tool, arguments=arguments, server=self._server)
        return canonical(arguments)

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise InvalidCall("the client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._max_bytes:
                raise InvalidCall("the body is too large", code="too_large", status=413)
            if not message.get("more_body", False):
                return b"".join(parts)


def _with_length(scope: Message, size: int) -> Message:
    dropped = (b"content-length", b"transfer-encoding", HEADER)
    headers = [(name, value) for name, value in scope["headers"] if name.lower() not in dropped]
    return {**scope, "headers": [*headers, (b"content-length", b"%d" % size)]}


def _once(body: bytes, after: Receive) -> Receive:
    """The body that was verified, then what the server says of the caller."""
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return await after()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


async def _refuse(send: Send, error: AegisError) -> None:
    refusal = error if isinstance(error, InvalidCall) else PermitInvalid("the permit could not be checked", status=503)
    shape = {"error": {"code": refusal.code, "message": refusal.message, "hint": refusal.hint}}
    data = orjson.dumps(shape)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(data))]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
