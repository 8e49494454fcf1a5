"""The `google-genai` package: generated content sync and async, whole and streamed, and its automatic calling.

Calls for code that is not the package's are decided in the answer. Those that the package executes itself are
decided where the function runs, with its final arguments.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from aegis.enforce.arguments import fitted, named_arguments
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import EnforcedScope, Holding, calling, current_scope, looping, streaming
from aegis.enforce.tools import ToolGate
from aegis.enforce.transport import ainspected, inspected
from aegis.enforce.turn import ProviderTurn
from aegis.errors import UnhookedFramework
from aegis.wire.gemini import GEMINI

# Automatic function calling of `google-genai`: the package's own loop over a model and Python functions.

_LIVE: Final = "live.connect"

# The calls of the answer whose functions are being run, in order: tool and id.
_answered: ContextVar[list[tuple[str, str]] | None] = ContextVar("aegis_genai_answered", default=None)


class Loop:
    """What is known of one loop: the functions that it runs, and how many requests it still makes."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.remaining = 0

    def request(self) -> frozenset[str]:
        """The functions whose calls in the next answer the loop runs; it hands those of its last one out."""
        if not self.names:
            return frozenset()
        self.remaining -= 1
        return self.names if self.remaining > 0 else frozenset()


def hook_loops(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the places where the package runs a function; `bar` refuses live sessions, which are not covered."""
    hooks = _Hooks(ToolGate(enforcer, memory))

    patches.methods(
        "google.genai._extra_utils",
        "",
        get_max_remote_calls_afc=_counted,
        get_function_map=hooks.functions,
        get_function_response_parts=_identified,
        get_function_response_parts_async=_aidentified,
    )
    whole, streamed = calling(_fresh), streaming(_fresh)
    for owner in ("Models", "AsyncModels"):
        patches.methods("google.genai.models", owner, generate_content=whole, generate_content_stream=streamed)
    for owner in ("Chat", "AsyncChat"):
        patches.methods("google.genai.chats", owner, send_message=whole, send_message_stream=streamed)
    patches.methods("google.genai._mcp_to_genai_tool_adapter", "McpToGenAiToolAdapter", call_tool=hooks.remote)
    if bar:
        patches.when("google.genai.live", lambda module: patches.bar(module.AsyncLive, "connect"))
    return Seams(
        seams=("automatic function calling", "McpToGenAiToolAdapter.call_tool"),
        barred=(_LIVE,) if bar else (),
        uncovered=() if bar else (_LIVE,),
    )


def _fresh(*_: Any, **__: Any) -> EnforcedScope:
    """The scope of a loop; a chat's loop goes on in the requests that it makes."""
    scope = current_scope()
    return scope if isinstance(scope.loop, Loop) else looping(Loop())


def _counted(original: Method) -> Method:
    def count(*args: Any, **kwargs: Any) -> Any:
        allowed = original(*args, **kwargs)
        loop = current_scope().loop
        if isinstance(loop, Loop):
            loop.remaining = allowed or 0
        return allowed

    return count


def _identified(original: Method) -> Method:
    def respond(response: Any, functions: Any) -> Any:
        with Holding(_answered, _calls_of(response)):
            return original(response, functions)

    return respond


def _aidentified(original: Method) -> Method:
    async def respond(response: Any, functions: Any) -> Any:
        with Holding(_answered, _calls_of(response)):
            return await original(response, functions)

    return respond


def _calls_of(response: Any) -> list[tuple[str, str]]:
    return [(call.name or "", call.id or "") for call in response.function_calls or ()]


def _next_id(tool: str) -> str:
    """The id of the first call of a tool that has not been run yet."""
    waiting = _answered.get() or []
    for one in waiting:
        if one[0] == tool:
            waiting.remove(one)
            return one[1]
    return ""


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def functions(self, original: Method) -> Method:
        def functions(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            loop = current_scope().loop
            if isinstance(loop, Loop):
                loop.names = frozenset(found)
            return {name: self._gated(name, one) for name, one in found.items()}

        return functions

    def remote(self, original: Method) -> Method:
        async def call_tool(adapter: Any, call: Any) -> Any:
            execution = Execution(
                tool=call.name, call_id=_next_id(call.name), answer_id=None, arguments=lambda: dict(call.args or {})
            )

            async def body(given: dict[str, Any]) -> Any:
                return await original(adapter, call.model_copy(update={"args": given}))

            return (await self._gate.acall(execution, body)).output()

        return call_tool

    def _gated(self, name: str, function: Any) -> Any:
        if not callable(function):
            return function  # an adapter of a remote tool, which is hooked itself
        signature = inspect.signature(function)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                values = named_arguments(signature.bind(*args, **kwargs))
                ran = await self._gate.acall(_execution(name, values), lambda given: function(**_typed(values, given)))
                return ran.told

            return arun

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            values = named_arguments(signature.bind(*args, **kwargs))
            return self._gate.call(_execution(name, values), lambda given: function(**_typed(values, given))).told

        return run


def _execution(name: str, values: dict[str, Any]) -> Execution:
    return Execution(tool=name, call_id=_next_id(name), answer_id=None, arguments=lambda: values)


def _typed(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What a function gets: what was decided, in the types that the package had made of it."""
    return fitted(values, given, lambda changed: {name: _like(values.get(name), one) for name, one in changed.items()})


def _like(before: Any, value: Any) -> Any:
    """A changed value as a model of the class that the one before was of."""
    validate = getattr(type(before), "model_validate", None)
    return value if validate is None else validate(value)


DISTRIBUTION: Final = "google-genai"
SUPPORTED: Final = ((2, 34), (4,))

_INTERACTIONS: Final = "/interactions"
_METHODS: Final = ("generateContent", "streamGenerateContent")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    transport = _Transport(enforcer, memory)

    patches.methods(
        "google.genai._api_client",
        "BaseApiClient",
        request=transport.request,
        async_request=transport.arequest,
        request_streamed=transport.stream,
        async_request_streamed=transport.astream,
    )
    loops = hook_loops(enforcer, memory, patches, bar=bar)
    if bar:
        patches.when("google.genai._gaos.basesdk", partial(_bar_interactions, patches))
    calls = ("calls that an interaction hands out",)
    return Seams(
        seams=("BaseApiClient.request", "BaseApiClient.request_streamed", *loops.seams),
        barred=(*loops.barred, *(calls if bar else ())),
        uncovered=("results of batches", *(() if bar else calls), *loops.uncovered),
    )


def _bar_interactions(patches: Patches, module: Any) -> None:
    """Refuse answers of interactions that hold a call: what is made of them is not seen."""

    def asked(original: Method) -> Method:
        def do_request(sdk: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            response = original(sdk, hook_ctx, request, *args, **kwargs)
            return inspected(response, _look) if _INTERACTIONS in request.url.path else response

        return do_request

    def aasked(original: Method) -> Method:
        async def do_request(sdk: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            response = await original(sdk, hook_ctx, request, *args, **kwargs)
            return await ainspected(response, _look) if _INTERACTIONS in request.url.path else response

        return do_request

    patches.replace(module.BaseSDK, "do_request", asked)
    patches.replace(module.AsyncBaseSDK, "do_request_async", aasked)


def _look(said: Any) -> None:
    """Raise for a step that is a call, wherever it stands."""
    waiting = [said]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            if one.get("type") == "function_call":
                raise UnhookedFramework("calls of interactions are not covered; use `generate_content` or a chat")
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


class _Transport:
    """One request and its answer, in the JSON of the wire."""

    def __init__(self, enforcer: Enforcer, memory: Memory) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._run = enforcer.run
        self._arun = enforcer.arun

    def request(self, original: Method) -> Method:
        def request(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return original(client, method, path, body, *args, **kwargs)
            response = original(client, method, path, self._run(turn.amended(body)), *args, **kwargs)
            return self._settled(turn, response)

        return request

    def arequest(self, original: Method) -> Method:
        async def request(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return await original(client, method, path, body, *args, **kwargs)
            response = await original(client, method, path, await self._arun(turn.amended(body)), *args, **kwargs)
            return await self._asettled(turn, response)

        return request

    def stream(self, original: Method) -> Method:
        def stream(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
            turn = self._turn(path)
            if turn is None:
                yield from original(client, method, path, body, *args, **kwargs)
                return
            for chunk in original(client, method, path, self._run(turn.amended(body)), *args, **kwargs):
                yield self._settled(turn, chunk)

        return stream

    def astream(self, original: Method) -> Method:
        async def stream(client: Any, method: str, path: str, body: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(path)
            if turn is None:
                return await original(client, method, path, body, *args, **kwargs)
            chunks = await original(client, method, path, await self._arun(turn.amended(body)), *args, **kwargs)
            return self._achunks(turn, chunks)

        return stream

    async def _achunks(self, turn: ProviderTurn, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for chunk in chunks:
            yield await self._asettled(turn, chunk)

    def _turn(self, path: str) -> ProviderTurn | None:
        if path.partition("?")[0].rpartition(":")[2] not in _METHODS:
            return None
        loop = current_scope().loop
        deferred = current_scope().deferred
        if isinstance(loop, Loop):
            deferred |= loop.request()
        return ProviderTurn(self._enforcer, self._memory, GEMINI, deferred=deferred)

    def _settled(self, turn: ProviderTurn, response: Any) -> Any:
        answer = _wire(response)
        return response if answer is None else _with_body(response, answer, self._run(turn.settled(answer)))

    async def _asettled(self, turn: ProviderTurn, response: Any) -> Any:
        answer = _wire(response)
        return response if answer is None else _with_body(response, answer, await self._arun(turn.settled(answer)))


def _wire(response: Any) -> dict[str, Any] | None:
    """The answer's object; what is none, the package cannot read a call from either."""
    try:
        answer = json.loads(response.body or "null")
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _with_body(response: Any, answer: dict[str, Any], settled: dict[str, Any]) -> Any:
    if settled == answer:
        return response
    return response.model_copy(update={"body": json.dumps(settled)})
