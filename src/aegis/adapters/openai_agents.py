"""OpenAI Agents SDK: every function tool, those of MCP servers and of agents as tools included, right before it runs.

Guardrails of tools see arguments before they are validated and are given tool by tool; every invocation goes through
one function below them. Who calls a tool past it (`on_invoke_tool`, `__wrapped__`) is an alarm. Other calls of the
model (handoffs, shells, patches, custom tools) are decided in its answer.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Final

from aegis.adapters._arguments import jsonable, named_arguments, shown
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._tools import ToolGate
from aegis.adapters._witness import watch, watched, witnessed
from aegis.adapters.openai_agents_models import Asking
from aegis.adapters.seams import Seams

DISTRIBUTION: Final = "openai-agents"
SUPPORTED: Final = ((0, 24), (0, 25))

_TEXT: Final = {"type", "text"}


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)

    def invocation(module: Any) -> None:
        patches.replace(module, "_invoke_function_tool_with_metadata", lambda original: _invoking(gate, original))
        invoker = witnessed(
            enforcer, lambda one, *_: str(one._function_tool.name), lambda _, args, kwargs: json.loads(args[2])
        )
        patches.replace(module._FailureHandlingFunctionToolInvoker, "__call__", invoker)
        watch(
            enforcer,
            patches,
            module.FunctionTool,
            "on_invoke_tool",
            name_of=lambda tool: str(tool.name),
            given_of=lambda _, args, kwargs: json.loads(args[1]),
        )
        wrapped = module._FunctionToolWrappedCallableDescriptor
        patches.replace(wrapped, "__get__", lambda original: _unwrapping(enforcer, patches, original))

    patches.when("agents.tool", invocation)
    # It took the function by name when it was loaded, if that was before.
    patches.when("agents.run_internal.tool_execution", lambda module: _same(module, patches, gate))
    asking = Asking(enforcer, memory)
    patches.when(
        "agents.models.interface",
        lambda module: patches.family(module.Model, {"get_response": asking.whole, "stream_response": asking.streamed}),
    )
    return Seams(
        seams=("function tool invocation", "Model.get_response", "Model.stream_response"),
        uncovered=(
            "tools that OpenAI hosts",
            "handoffs in realtime sessions",
            "a function that the host calls by its own name",
            "what a guardrail or an approver says in place of a result, which is its own word",
        ),
    )


def _unwrapping(enforcer: Enforcer, patches: Patches, original: Method) -> Method:
    """The function that a tool is made of, for whoever takes it from there."""

    def get(descriptor: Any, tool: Any, owner: Any = None) -> Any:
        function = original(descriptor, tool, owner)
        return watched(enforcer, patches, function, str(tool.name)) if inspect.isroutine(function) else function

    return get


def _same(module: Any, patches: Patches, gate: ToolGate) -> None:
    import agents.tool

    name = "_invoke_function_tool_with_metadata"
    if module.__dict__.get(name) is not agents.tool.__dict__.get(name):
        patches.replace(module, name, lambda original: _invoking(gate, original))


def _invoking(gate: ToolGate, original: Method) -> Method:
    async def invoke(*, function_tool: Any, context: Any, arguments: str) -> Any:
        execution = Execution(
            tool=function_tool.name,
            call_id=context.tool_call_id,
            answer_id=None,
            arguments=lambda: _final(function_tool, arguments),
        )

        async def body(given: dict[str, Any]) -> Any:
            return await original(function_tool=function_tool, context=context, arguments=json.dumps(given))

        ran = await gate.acall(execution, body, lambda result: _view(result.output))
        if ran.replaced:
            from agents.tool import _FunctionToolInvocationResult

            return _FunctionToolInvocationResult(ran.seen)
        return ran.result

    return invoke


def _view(output: Any) -> Any:
    """What of an output the model is told: the text itself, where it is one part that is text."""
    value = shown(output)
    return value["text"] if isinstance(value, dict) and value.keys() == _TEXT and value["type"] == "text" else value


def _final(tool: Any, arguments: str) -> dict[str, Any]:
    """The arguments as the function gets them: validated and defaulted where the tool is made of one."""
    given = json.loads(arguments) if arguments else {}
    if not isinstance(given, dict):
        raise TypeError("the arguments are no object")
    try:
        function = inspect.unwrap(tool.__wrapped__)
    except AttributeError:
        return given
    from agents.function_schema import function_schema

    schema = function_schema(function)
    args, kwargs = schema.to_call_args(schema.params_pydantic_model(**given))
    before = (None,) if schema.takes_context else ()
    named = named_arguments(schema.signature.bind(*before, *args, **kwargs))
    if schema.takes_context:
        named.pop(next(iter(schema.signature.parameters)))
    found: dict[str, Any] = jsonable(named)
    return found
