"""Strands: every tool of every agent, below its hooks, middleware and executors, right before it runs.

Hooks and interventions see arguments before they are validated, and later ones change them; a background task runs
past the first of them. All of them end in a tool's `stream`, which validates and then runs the body.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from aegis.enforce.arguments import bound_arguments, jsonable, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import EnforcedScope, deferring, streaming
from aegis.enforce.tools import Ran, ToolGate
from aegis.enforce.witness import watch, witnessed

DISTRIBUTION: Final = "strands-agents"
SUPPORTED: Final = ((1, 62), (2,))


class _Paused(Exception):
    """The body asks a person and will be run again: it has no result yet."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.event = event


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=(f"{__name__}.{_Paused.__qualname__}",))
    patches.families("strands.types.tools", "AgentTool", stream=lambda original: _running(gate, original))

    def functions(module: Any) -> None:
        tool = module.DecoratedFunctionTool
        patches.replace(tool, "__call__", witnessed(enforcer, lambda one, *_: str(one.tool_name), _called_with))
        watch(enforcer, patches, tool, "_tool_func", "__wrapped__", name_of=lambda one: str(one.tool_name))

    patches.when("strands.tools.decorator", functions)
    patches.families("strands.models.model", "Model", stream=streaming(_deferred))
    return Seams(
        seams=("AgentTool.stream", "Model.stream"),
        uncovered=(
            "what a hook says in place of a result, which is its own word (`cancel_tool`)",
            "tools that a provider hosts",
        ),
    )


def _called_with(_: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    tool, *values = args
    return bound_arguments(vars(tool)["_tool_func"], tuple(values), kwargs)


def _running(gate: ToolGate, original: Method) -> Method:
    async def stream(tool: Any, tool_use: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        # The form of a final answer is no tool: nothing is executed.
        if tool.tool_type == "structured_output":
            async for event in original(tool, tool_use, *args, **kwargs):
                yield event
            return

        async def body(given: dict[str, Any]) -> Any:
            # Validated again inside: what comes of it must be what was decided.
            if jsonable(_validated(tool, given)) != given:
                raise ValueError("the arguments do not fit the tool")
            return await _collected(original(tool, {**tool_use, "input": given}, *args, **kwargs))

        execution = Execution(
            tool=tool.tool_name,
            call_id=str(tool_use.get("toolUseId") or ""),
            answer_id=None,
            arguments=lambda: _validated(tool, tool_use.get("input") or {}),
        )
        try:
            ran = await gate.acall(execution, body, lambda events: _view(events[-1]))
        except _Paused as paused:
            yield paused.event
            return
        # Nothing is told of a body before its result is judged.
        for event in [_result(tool_use, ran)] if ran.replaced else ran.result:
            yield event

    return stream


async def _collected(events: AsyncIterator[Any]) -> list[Any]:
    """The events of a body, the last of which is its result; raises `_Paused` where it has none."""
    from strands.types._events import ToolInterruptEvent

    collected: list[Any] = []
    async for event in events:
        if isinstance(event, ToolInterruptEvent):
            raise _Paused(event)
        collected.append(event)
    if not collected:
        raise ValueError("the tool gave no result")
    return collected


def _validated(tool: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments as a function gets them; of a tool that is none, those that it is given."""
    metadata = getattr(tool, "_metadata", None)
    validate = getattr(metadata, "validate_input", None)
    found: dict[str, Any] = dict(given) if validate is None else validate(given)
    return found


def _tool_result(event: Any) -> dict[str, Any]:
    """The result in an event; tools that are no functions give it bare."""
    found: dict[str, Any] = event.tool_result if hasattr(event, "tool_result") else event
    return found


def _view(event: Any) -> Any:
    content = _tool_result(event).get("content") or []
    return content[0]["text"] if len(content) == 1 and set(content[0]) == {"text"} else shown(content)


def _result(tool_use: Any, ran: Ran) -> Any:
    """The event that stands in place of what the model may not see."""
    from strands.types._events import ToolResultEvent

    failed = ran.failed or _tool_result(ran.result[-1]).get("status") == "error"
    content = ran.seen if isinstance(ran.seen, list) else [{"text": ran.text}]
    status = "error" if failed else "success"
    return ToolResultEvent({"toolUseId": str(tool_use.get("toolUseId")), "status": status, "content": content})


def _deferred(_: Any, messages: Any, tool_specs: Any = None, *args: Any, **kwargs: Any) -> EnforcedScope:
    """What an agent's request offers, its event loop executes."""
    return deferring(spec["name"] for spec in tool_specs or ())
