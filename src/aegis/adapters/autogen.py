"""AutoGen: every call of a workbench, and every tool that is run past one.

A workbench is what an agent asks for a tool, those of MCP servers included; a tool agent and a handoff run a tool
itself. Both are decided with the arguments that the body gets.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from aegis.enforce.arguments import jsonable, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, comes_from
from aegis.enforce.scope import EnforcedScope, calling, current_scope, deferring, looping, streaming
from aegis.enforce.tools import Ran, ToolGate
from aegis.enforce.witness import watch, witnessed
from aegis.errors import CallRefused

DISTRIBUTION: Final = "autogen-core"
SUPPORTED: Final = ((0, 7, 5), (0, 8))

_LOOP: Final = "autogen"
_TOOL_AGENT: Final = "autogen tool agent"
_CALLER: Final = "tool_agent_caller_loop"


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)
    patches.families(
        "autogen_core.tools._workbench",
        "Workbench",
        call_tool=lambda original: _calling(gate, original),
        call_tool_stream=lambda original: _streaming(gate, original),
    )
    patches.families(
        "autogen_core.tools._base",
        "BaseTool",
        run_json=lambda original: _running(gate, original),
        run_json_stream=lambda original: _running_stream(gate, original),
        run=witnessed(enforcer, lambda tool, *_: str(tool.name), lambda _, args, kwargs: jsonable(args[1])),
    )
    patches.when(
        "autogen_core.tools._function_tool",
        lambda module: watch(enforcer, patches, module.FunctionTool, "_func", name_of=lambda tool: str(tool.name)),
    )
    patches.families(
        "autogen_core.models._model_client",
        "ChatCompletionClient",
        create=calling(_deferred),
        create_stream=streaming(_deferred),
    )
    patches.methods(
        "autogen_agentchat.agents._assistant_agent",
        "AssistantAgent",
        on_messages_stream=streaming(_in_loop),
        _execute_tool_call=_ending,
        _check_and_handle_handoff=_handing_off,
    )
    # A tool agent decides the calls where it runs its tools.
    patches.methods("autogen_core.tool_agent._caller_loop", "", **{_CALLER: calling(_in_loop)})
    patches.methods(
        "autogen_core.tool_agent._tool_agent",
        "ToolAgent",
        handle_function_call=calling(lambda *_, **__: looping(_TOOL_AGENT)),
    )
    # It took the function by name when it was loaded, if that was before.
    patches.when("autogen_core.tool_agent", lambda module: _same(module, patches))
    return Seams(
        seams=(
            "Workbench.call_tool",
            "Workbench.call_tool_stream",
            "BaseTool.run_json",
            "BaseStreamTool.run_json_stream",
            "ChatCompletionClient",
        ),
        uncovered=("code that a code executor agent runs",),
    )


def _same(module: Any, patches: Patches) -> None:
    from autogen_core.tool_agent import _caller_loop

    if vars(module).get(_CALLER) is not vars(_caller_loop).get(_CALLER):
        patches.replace(module, _CALLER, calling(_in_loop))


def _in_loop(*_: Any, **__: Any) -> EnforcedScope:
    return looping(_LOOP)


def _calling(gate: ToolGate, original: Method) -> Method:
    async def call_tool(
        workbench: Any, name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> Any:
        async def body(given: dict[str, Any]) -> Any:
            return await original(workbench, name, given, cancellation_token, call_id)

        ran = await gate.acall(_execution(workbench, name, arguments, call_id), body, lambda result: result.to_text())
        return _result(name, ran) if ran.replaced else ran.result

    return call_tool


def _streaming(gate: ToolGate, original: Method) -> Method:
    async def call_tool_stream(
        workbench: Any, name: str, arguments: Any = None, cancellation_token: Any = None, call_id: str | None = None
    ) -> AsyncIterator[Any]:
        async def body(given: dict[str, Any]) -> Any:
            return [event async for event in original(workbench, name, given, cancellation_token, call_id)]

        execution = _execution(workbench, name, arguments, call_id)
        ran = await gate.acall(execution, body, lambda events: events[-1].to_text())
        # Nothing is told of a body before its result is judged.
        for event in [_result(name, ran)] if ran.replaced else ran.result:
            yield event

    return call_tool_stream


def _running(gate: ToolGate, original: Method) -> Method:
    async def run_json(tool: Any, args: Any, cancellation_token: Any, call_id: str | None = None) -> Any:
        async def body(given: dict[str, Any]) -> Any:
            return await original(tool, _fitting(tool, given), cancellation_token, call_id)

        told = current_scope().loop == _TOOL_AGENT
        ran = await gate.acall(_direct(tool, args, call_id), body, shown)
        # A tool agent loses what an exception says.
        return ran.seen if told and ran.failed else ran.output()

    return run_json


def _running_stream(gate: ToolGate, original: Method) -> Method:
    async def run_json_stream(
        tool: Any, args: Any, cancellation_token: Any, call_id: str | None = None
    ) -> AsyncIterator[Any]:
        async def body(given: dict[str, Any]) -> Any:
            return [one async for one in original(tool, _fitting(tool, given), cancellation_token, call_id)]

        ran = await gate.acall(_direct(tool, args, call_id), body, lambda given: shown(given[-1]))
        # Nothing is told of a body before its result is judged.
        for one in [ran.output()] if ran.replaced else ran.result:
            yield one

    return run_json_stream


# Where the package makes the tools that let another agent go on, or ask one.
_HANDING_OFF: Final = ("autogen_agentchat.base._handoff", "autogen_agentchat.tools._agent")


def _direct(tool: Any, args: Any, call_id: str | None) -> Execution:
    """The call of a tool that is run past a workbench."""
    return Execution(
        tool=tool.name,
        call_id=call_id or "",
        answer_id=None,
        arguments=lambda: _validated(tool, args),
        handoff=comes_from(tool, *_HANDING_OFF),
    )


def _fitting(tool: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, which are validated again inside: what comes of it must be what was decided."""
    if _validated(tool, given) != given:
        raise ValueError("the arguments do not fit the tool")
    return given


def _execution(workbench: Any, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> Execution:
    """The call, with final arguments where the workbench is made of tools that say what they take."""
    renamed: dict[str, str] = getattr(workbench, "_override_name_to_original", None) or {}
    found = [one for one in getattr(workbench, "_tools", None) or () if one.name == renamed.get(name, name)]
    return Execution(
        tool=name,
        call_id=call_id or "",
        answer_id=None,
        arguments=lambda: _validated(found[0], arguments or {}) if found else dict(arguments or {}),
        handoff=bool(found) and comes_from(found[0], *_HANDING_OFF),
    )


def _validated(tool: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as a tool gets them: validated and defaulted."""
    found: dict[str, Any] = jsonable(tool.args_type().model_validate(dict(given)))
    return found


def _result(name: str, ran: Ran) -> Any:
    """The result that stands in place of what the model may not see."""
    from autogen_core.tools import TextResultContent, ToolResult

    return ToolResult(name=name, result=[TextResultContent(content=ran.text)], is_error=ran.failed)


def _ending(original: Method) -> Method:
    """A call of an agent comes to a result: the agent waits for ever for one that raises instead."""

    async def execute(*, tool_call: Any, **options: Any) -> Any:
        try:
            return await original(tool_call=tool_call, **options)
        except Exception as error:
            from autogen_core.models import FunctionExecutionResult

            # What an error says was judged where it is a refusal, and nowhere where it is one of our own.
            said = (
                str(error) if isinstance(error, CallRefused) else f"`{tool_call.name}` failed: {type(error).__name__}"
            )
            result = FunctionExecutionResult(content=said, call_id=tool_call.id, is_error=True, name=tool_call.name)
            return tool_call, result

    return execute


def _handing_off(original: Method) -> Method:
    """A handoff that came to nothing is a call like any other: its agent goes on and is told."""

    def check(*, executed_calls_and_results: Any, handoffs: Any, **options: Any) -> Any:
        failed = {call.name for call, result in executed_calls_and_results if result.is_error}
        left = {name: one for name, one in handoffs.items() if name not in failed}
        return original(executed_calls_and_results=executed_calls_and_results, handoffs=left, **options)

    return check


def _deferred(*_: Any, **options: Any) -> EnforcedScope:
    """The tools that an agent's own request offers: its workbenches execute them."""
    scope = current_scope()
    if scope.loop != _LOOP:
        return scope
    return deferring(tool["name"] if isinstance(tool, dict) else tool.name for tool in options.get("tools") or ())
