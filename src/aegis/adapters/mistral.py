"""The `mistralai` package: chat and agent completions, sync, async and streamed, and functions of a run context.

Calls for code that is not the package's are decided in the answer. Conversations are covered where a run context
executes the functions; one that hands a function call out is refused.
"""

from __future__ import annotations

import json
from typing import Any, Final

from aegis.enforce.arguments import bound_arguments, check_types, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import EnforcedScope, calling, current_scope, deferring, streaming
from aegis.enforce.tools import ToolGate
from aegis.enforce.transport import (
    Look,
    ainspected,
    inspected,
    with_async_stream,
    with_settled_abody,
    with_settled_body,
    with_stream,
)
from aegis.enforce.turn import StreamedTurn
from aegis.enforce.witness import watch
from aegis.errors import UnhookedFramework
from aegis.wire.openai_chat import OpenAIChat

DISTRIBUTION: Final = "mistralai"
SUPPORTED: Final = ((3, 7), (4,))

_CHAT: Final = OpenAIChat()
_COMPLETIONS: Final = ("/chat/completions", "/agents/completions")
_CLIENTS: Final = ("mistralai.client", "mistralai.azure.client", "mistralai.gcp.client")
_CALLS: Final = ("function.call", "function.call.delta")
_HANDED_OUT: Final = "function calls of a conversation that no run context executes"


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; `bar` refuses the paths that are not covered. Raises `UnhookedFramework`."""
    transport = _Transport(enforcer, memory, bar=bar)
    hooks = _Hooks(ToolGate(enforcer, memory))

    def functions(module: Any) -> None:
        for owner, name in ((module.RunFunction, "callable"), (module.RunCoroutine, "awaitable")):
            watch(enforcer, patches, owner, name, name_of=lambda tool: str(tool.name))

    for package in _CLIENTS:
        patches.methods(f"{package}.basesdk", "BaseSDK", do_request=transport.send, do_request_async=transport.asend)
    patches.methods("mistralai.extra.run.context", "", create_function_result=hooks.create_function_result)
    patches.when("mistralai.extra.run.tools", functions)
    patches.methods(
        "mistralai.client.conversations",
        "Conversations",
        run_async=calling(_executed),
        run_stream_async=streaming(_executed),
    )
    return Seams(
        seams=("BaseSDK.do_request", "BaseSDK.do_request_async", "RunContext"),
        barred=(_HANDED_OUT,) if bar else (),
        uncovered=("results of batches",) + (() if bar else (_HANDED_OUT,)),
    )


def _executed(*args: Any, run_ctx: Any, **kwargs: Any) -> EnforcedScope:
    """The requests of a run, whose context executes the functions that it has."""
    return deferring(run_ctx._callable_tools)


class _Transport:
    """One request and its answer, for all clients of the package."""

    def __init__(self, enforcer: Enforcer, memory: Memory, *, bar: bool) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._bar = bar

    def send(self, original: Method) -> Method:
        def send(client: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(request)
            if turn is not None:
                body = json.loads(request.content)
                request = _with_content(request, body, self._enforcer.run(turn.amended(body)))
            response = original(client, hook_ctx, request, *args, **kwargs)
            if turn is None:
                return inspected(response, _look(current_scope().deferred)) if self._looks(request) else response
            if kwargs.get("stream"):
                return with_stream(response, turn.chunks(response.iter_bytes()))
            return with_settled_body(response, turn)

        return send

    def asend(self, original: Method) -> Method:
        async def send(client: Any, hook_ctx: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
            turn = self._turn(request)
            if turn is not None:
                body = json.loads(request.content)
                request = _with_content(request, body, await self._enforcer.arun(turn.amended(body)))
            response = await original(client, hook_ctx, request, *args, **kwargs)
            if turn is None:
                if not self._looks(request):
                    return response
                return await ainspected(response, _look(current_scope().deferred))
            if kwargs.get("stream"):
                return with_async_stream(response, turn.achunks(response.aiter_bytes()))
            return await with_settled_abody(response, turn)

        return send

    def _turn(self, request: Any) -> StreamedTurn | None:
        path = request.url.path.rstrip("/").partition("#")[0]
        if not path.endswith(_COMPLETIONS):
            return None
        return StreamedTurn(self._enforcer, self._memory, _CHAT, deferred=current_scope().deferred)

    def _looks(self, request: Any) -> bool:
        """Whether an answer is one of a conversation, which must hand out no call."""
        return self._bar and "/conversations" in request.url.path


def _look(names: frozenset[str]) -> Look:
    """Raise for a call that the run around it, whose functions are `names`, hands out."""

    def look(said: Any) -> None:
        outputs = said.get("outputs") if isinstance(said, dict) else None
        for entry in outputs if isinstance(outputs, list) else [said]:
            if isinstance(entry, dict) and entry.get("type") in _CALLS and entry.get("name") not in names:
                raise _uncovered()

    return look


def _uncovered() -> UnhookedFramework:
    return UnhookedFramework(f"{_HANDED_OUT} are not covered; register the functions in a `RunContext`")


def _with_content(request: Any, body: dict[str, Any], amended: dict[str, Any]) -> Any:
    if amended is body:
        return request
    headers = [(name, value) for name, value in request.headers.multi_items() if name.lower() != "content-length"]
    content = json.dumps(amended).encode()
    return type(request)(request.method, request.url, headers=headers, content=content, extensions=request.extensions)


class _Hooks:
    """The replacement of what executes a function, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def create_function_result(self, original: Method) -> Method:
        async def create(function_call: Any, run_tool: Any, *args: Any, **kwargs: Any) -> Any:
            execution = Execution(
                tool=function_call.name,
                call_id=function_call.tool_call_id,
                answer_id=function_call.id,
                arguments=lambda: _final(run_tool, function_call.arguments),
            )

            async def body(given: dict[str, Any]) -> Any:
                return await original(function_call.model_copy(update={"arguments": given}), run_tool, *args, **kwargs)

            ran = await self._gate.acall(execution, body, lambda entry: shown(entry.result))
            if not ran.replaced:
                return ran.result
            from mistralai.client.models import FunctionResultEntry

            return FunctionResultEntry(tool_call_id=function_call.tool_call_id, result=ran.text)

        return create


def _final(run_tool: Any, given: Any) -> dict[str, Any]:
    """The arguments with which the function runs; a remote tool has no defaults here."""
    arguments: dict[str, Any] = json.loads(given) if isinstance(given, str) else given
    function = getattr(run_tool, "callable", None) or getattr(run_tool, "awaitable", None)
    if function is None:
        return arguments
    named = bound_arguments(function, (), arguments)
    check_types(function, named)
    return named
