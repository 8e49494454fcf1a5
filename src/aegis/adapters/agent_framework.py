"""Microsoft Agent Framework: every function tool, those of MCP servers and of agents as tools included, as it runs.

Function middleware sees arguments that later middleware changes, and is given agent by agent. All ways end in one
method of a tool, with validated arguments; the call's id is known one step before. What middleware gives in a tool's
place came without a decision and is no result.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, Final

from aegis.enforce.arguments import fitted, named_arguments, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import (
    EnforcedScope,
    aitems_in,
    call_id_of,
    calling,
    current_scope,
    deferring,
    executing,
    scoped,
)
from aegis.enforce.tools import ToolGate
from aegis.enforce.witness import watch, witnessed

DISTRIBUTION: Final = "agent-framework-core"
SUPPORTED: Final = ((1, 23), (2,))


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=("agent_framework.exceptions.UserInputRequiredException",))

    def tools(module: Any) -> None:
        patches.family(
            module.FunctionTool,
            {
                "invoke": calling(lambda tool, **options: executing(tool.name, options.get("tool_call_id"))),
                "_invoke_function": lambda original: _running(gate, original),
                "__call__": witnessed(enforcer, lambda tool, *_: str(tool.name), lambda _, args, kwargs: kwargs),
            },
        )
        watch(enforcer, patches, module.FunctionTool, "func", name_of=lambda tool: str(tool.name))
        patches.replace(module, "_auto_invoke_function", lambda original: _handing(gate, original))

    patches.when("agent_framework._tools", tools)
    patches.families("agent_framework._clients", "BaseChatClient", _inner_get_response=_asking)
    return Seams(
        seams=("FunctionTool.invoke", "function middleware", "BaseChatClient"),
        uncovered=(
            "tools that a provider hosts",
            "handoffs of `agent-framework-orchestrations`, whose agents' tools are covered",
            "calls of tools that are only declared, over clients that nothing else hooks",
        ),
    )


def _handing(gate: ToolGate, original: Method) -> Method:
    """Middleware around a call, which may answer it itself, or end the run with an answer."""

    async def invoke(*, function_call_content: Any, **options: Any) -> Any:
        content = function_call_content
        call = content if content.type == "function_call" else content.function_call
        pipeline, tools = options.get("middleware_pipeline"), options.get("tool_map") or {}
        if pipeline is None or not pipeline.has_middlewares or call is None or call.name not in tools:
            return await original(function_call_content=content, **options)
        handed, ending = gate.handed(call.name, call.call_id), None
        try:
            result = await handed.arun(original(function_call_content=content, **options))
        except Exception as error:
            ending, result = error, getattr(error, "result", None)
        refusal = handed.refusal(answered=_is_answer(result))
        if refusal:
            from agent_framework import Content

            result = Content.from_function_result(call_id=call.call_id, result=refusal, exception=refusal)
            if ending is not None and hasattr(ending, "result"):
                ending.result = result
        if ending is not None:
            raise ending
        return result

    return invoke


def _is_answer(content: Any) -> bool:
    """Whether middleware gave a result: neither an error, nor a question to a person."""
    return getattr(content, "type", "") == "function_result" and content.exception is None


def _running(gate: ToolGate, original: Method) -> Method:
    async def run(tool: Any, call_kwargs: dict[str, Any]) -> Any:
        context = tool._context_parameter_name
        values = _named(tool, {name: value for name, value in call_kwargs.items() if name != context})
        given_by_host = {name: value for name, value in call_kwargs.items() if name == context}
        execution = Execution(tool=tool.name, call_id=call_id_of(tool.name), answer_id=None, arguments=lambda: values)

        async def body(given: dict[str, Any]) -> Any:
            return await original(tool, {**fitted(values, given, tool._prepare_arguments), **given_by_host})

        return (await gate.acall(execution, body, _view)).told

    return run


def _named(tool: Any, values: dict[str, Any]) -> dict[str, Any]:
    """The validated arguments, with the defaults of the tool's function."""
    function = tool.func
    while hasattr(function, "func") and hasattr(function, "_invoke_function"):
        function = function.func
    if function is None:
        return values
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(function).parameters.items()
        if name in values or (one.default is not one.empty and name != tool._context_parameter_name)
    ]
    known = {one.name for one in parameters}
    bound = inspect.Signature(parameters).bind(**{name: one for name, one in values.items() if name in known})
    return {**values, **named_arguments(bound)}


def _view(result: Any) -> Any:
    """What the model is told: the text of a result that is nothing else."""
    if isinstance(result, list) and len(result) == 1 and getattr(result[0], "type", None) == "text":
        return result[0].text
    return shown([_plain(one) for one in result] if isinstance(result, list) else _plain(result))


def _plain(one: Any) -> Any:
    return one.to_dict() if hasattr(one, "to_dict") else one


def _asking(original: Method) -> Method:
    def ask(client: Any, **options: Any) -> Any:
        scope = _deferred(client, options.get("options") or {})
        if options.get("stream"):
            return _streamed(original(client, **options), scope)
        return _asked(original(client, **options), scope)

    return ask


async def _asked(answer: Any, scope: EnforcedScope) -> Any:
    with scoped(scope):
        return await answer


def _streamed(answer: Any, scope: EnforcedScope) -> Any:
    """The stream, each item of which is made in the scope."""
    if inspect.isawaitable(answer) and not hasattr(answer, "__aiter__"):
        return _awaited(answer, scope)
    if hasattr(answer, "_stream_source"):
        answer._stream_source = _items(answer._stream_source, scope)
        return answer
    return _items(answer, scope)


async def _awaited(answer: Any, scope: EnforcedScope) -> Any:
    with scoped(scope):
        found = await answer
    return _streamed(found, scope)


async def _items(source: Any, scope: EnforcedScope) -> AsyncIterator[Any]:
    with scoped(scope):
        found = source if hasattr(source, "__aiter__") else await source
    async for item in aitems_in(scope, aiter(found)):
        yield item


def _deferred(client: Any, options: Any) -> EnforcedScope:
    """The function tools of a request that the client's own loop executes."""
    from agent_framework._tools import FunctionInvocationLayer

    configured = getattr(client, "function_invocation_configuration", None) or {}
    if not isinstance(client, FunctionInvocationLayer) or not configured.get("enabled", True):
        return current_scope()
    tools = options.get("tools") or ()
    offered = tools if isinstance(tools, (list, tuple)) else [tools]
    return deferring(tool.name for tool in offered if hasattr(tool, "_invoke_function") and not tool.declaration_only)
