"""Google ADK: every tool class, of agents, sub-agents, toolsets and MCP servers, right where it is executed."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any, Final

from aegis.adapters._arguments import check_types, fitted, named_arguments, shown
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._scope import aitems_in, deferring
from aegis.adapters._tools import ToolGate
from aegis.adapters._witness import witnessed
from aegis.adapters.seams import Seams

DISTRIBUTION: Final = "google-adk"
SUPPORTED: Final = ((2, 13), (3,))


class _Paused(Exception):
    """The body asked a person, and is run again once there is an answer: it has no result yet."""


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=(f"{__name__}.{_Paused.__qualname__}",))
    patches.when(
        "google.adk.tools.base_tool",
        lambda module: patches.family(module.BaseTool, {"run_async": lambda original: _running(gate, original)}),
    )
    witness = witnessed(enforcer, lambda tool, *_: str(tool.name))
    patches.when(
        "google.adk.tools.function_tool",
        lambda module: patches.replace(module.FunctionTool, "_invoke_callable", witness),
    )
    patches.when(
        "google.adk.models.base_llm",
        lambda module: patches.family(module.BaseLlm, {"generate_content_async": _asking}),
    )
    return Seams(
        seams=("BaseTool.run_async", "BaseLlm.generate_content_async"),
        uncovered=("tools that a provider hosts", "code executors", "live sessions"),
    )


def _running(gate: ToolGate, original: Method) -> Method:
    async def run_async(tool: Any, *, args: dict[str, Any], tool_context: Any) -> Any:
        values: dict[str, Any] = {}

        def final() -> dict[str, Any]:
            values.update(_final(tool, args))
            return values

        execution = Execution(
            tool=tool.name,
            call_id=getattr(tool_context, "function_call_id", None) or "",
            answer_id=getattr(tool_context, "invocation_id", None),
            arguments=final,
        )

        async def body(given: dict[str, Any]) -> Any:
            run = fitted(values or args, given, lambda changed: changed)
            result = await original(tool, args=run, tool_context=tool_context)
            if _asks(tool_context):
                raise _Paused
            return result

        try:
            ran = await gate.acall(execution, body, shown)
        except _Paused:
            told = f"`{tool.name}` waits for the answer of a person"
            gate.waiting(execution, told)
            return {"result": told}
        if not ran.replaced:
            return ran.result
        return ran.seen if isinstance(ran.seen, dict) else {"result": ran.seen}

    return run_async


def _asks(tool_context: Any) -> bool:
    """Whether the body asked for a confirmation or for credentials of its call."""
    actions, call_id = getattr(tool_context, "actions", None), getattr(tool_context, "function_call_id", None)
    asked = ("requested_tool_confirmations", "requested_auth_configs")
    return any(call_id in (getattr(actions, name, None) or ()) for name in asked)


def _final(tool: Any, args: dict[str, Any]) -> dict[str, Any]:
    """The arguments as the tool's function gets them; of a tool that is no function, those that it is given."""
    function = getattr(tool, "func", None)
    prepare = getattr(tool, "_preprocess_args", None)
    if function is None or prepare is None:
        return dict(args)
    made = prepare(args)
    signature = inspect.signature(function)
    context = getattr(tool, "_context_param_name", None) or "tool_context"
    ignored = {context, "tool_context", "input_stream"}
    fixed = {name: None for name in ignored if name in signature.parameters}
    given = {name: value for name, value in made.items() if name not in ignored}
    named = named_arguments(signature.bind(**given, **fixed))
    found = {name: value for name, value in named.items() if name not in ignored}
    check_types(function, found)
    return found


def _asking(original: Method) -> Method:
    def ask(model: Any, llm_request: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        # What an agent's request offers, its flow executes.
        scope = deferring(getattr(llm_request, "tools_dict", None) or ())
        return aitems_in(scope, original(model, llm_request, *args, **kwargs))

    return ask
