"""Google ADK: every tool class, of agents, sub-agents, toolsets and MCP servers, right where it is executed.

Callbacks and plugins stand before that: they may change arguments, which are then decided as they became. What they
answer in a tool's place came without a decision and is no result.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

from aegis.enforce.arguments import check_types, fitted, named_arguments, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, comes_from
from aegis.enforce.scope import EnforcedScope, deferring, reached, streaming
from aegis.enforce.tools import ToolGate
from aegis.enforce.witness import watch, witnessed

DISTRIBUTION: Final = "google-adk"
SUPPORTED: Final = ((2, 13), (3,))


class _Paused(Exception):
    """The body asked a person, and is run again once there is an answer: it has no result yet."""


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=(f"{__name__}.{_Paused.__qualname__}",))
    patches.families("google.adk.tools.base_tool", "BaseTool", run_async=lambda original: _running(gate, original))
    witness = witnessed(enforcer, lambda tool, *_: str(tool.name), lambda _, args, kwargs: args[2])

    def functions(module: Any) -> None:
        patches.replace(module.FunctionTool, "_invoke_callable", lambda original: _asking_or(witness, original))
        watch(enforcer, patches, module.FunctionTool, "func", name_of=lambda tool: str(tool.name))

    def caller(module: Any) -> None:
        patches.replace(module, "_execute_single_prepared_call", lambda original: _handing(gate, module, original))
        patches.replace(module, "apply_confirmation_gate", _confirming)

    patches.when("google.adk.tools.function_tool", functions)
    patches.when("google.adk.flows.llm_flows.tools._caller", caller)
    patches.methods("google.adk.runners", "Runner", run_async=enforcer.hearer.entry(_said))
    patches.families("google.adk.models.base_llm", "BaseLlm", generate_content_async=streaming(_deferred))
    return Seams(
        seams=("BaseTool.run_async", "callbacks around a tool", "BaseLlm.generate_content_async"),
        uncovered=("tools that a provider hosts", "code executors", "live sessions"),
    )


def _said(_runner: Any, *, new_message: Any = None, **_: Any) -> Iterator[str]:
    """What the user says in the message of a run: its texts, without files, answers of functions and results."""
    if new_message is not None and new_message.role in {None, "user"}:
        yield from (part.text for part in new_message.parts or () if part.text)


# Where the package makes the tools that let another agent go on, or ask one.
_HANDING_OFF: Final = ("google.adk.tools.transfer_to_agent_tool", "google.adk.tools.agent_tool")


def _asking_or(witness: Callable[[Method], Method], original: Method) -> Method:
    """The function of a tool is its body; the one that says whether a person has to confirm is not."""
    witnessing = witness(original)

    def invoke(tool: Any, target: Any, *args: Any) -> Any:
        return (original if target is getattr(tool, "_require_confirmation", None) else witnessing)(tool, target, *args)

    return invoke


def _handing(gate: ToolGate, module: Any, original: Method) -> Method:
    """Callbacks and plugins around a call, which may answer it themselves."""

    async def execute(context: Any, prepared: Any, agent: Any, **options: Any) -> Any:
        if prepared.tool_lookup_error is not None:
            return await original(context, prepared, agent, **options)
        handed = gate.handed(prepared.tool.name, prepared.tool_context.function_call_id)
        event = await handed.arun(original(context, prepared, agent, **options))
        refusal = handed.refusal(answered=event is not None)
        if not refusal:
            return event
        return module._build_response_event(prepared.tool, {"result": refusal}, prepared.tool_context, context)

    return execute


def _confirming(original: Method) -> Method:
    """A tool that a person has to confirm is answered by the package: nothing ran."""

    async def confirm(tool: Any, args: Any, tool_context: Any) -> Any:
        answer = await original(tool, args, tool_context)
        if answer is not None:
            reached(tool_context.function_call_id)
        return answer

    return confirm


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
            handoff=comes_from(tool, *_HANDING_OFF),
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


def _deferred(_: Any, llm_request: Any, *args: Any, **kwargs: Any) -> EnforcedScope:
    """What an agent's request offers, its flow executes."""
    return deferring(getattr(llm_request, "tools_dict", None) or ())
