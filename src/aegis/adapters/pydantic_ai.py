"""Pydantic AI: every tool of every toolset, after validation and all hooks, right before it is executed.

A function that makes the final answer of what a model says (an output function, `TextOutput`, an action of `Choices`)
is a tool like any other: it is decided under its own name. What the toolsets around a tool make of the arguments after
the decision does not run.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from aegis.enforce.arguments import fitted, named_arguments, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, RunnerGate
from aegis.enforce.scope import EnforcedScope, calling, current_scope, deferring, enter, looping
from aegis.enforce.tools import ToolGate
from aegis.enforce.witness import watch, witnessed

DISTRIBUTION: Final = "pydantic-ai-slim"
SUPPORTED: Final = ((2, 68), (3,))

_LOOP: Final = "pydantic-ai"
_PAUSES: Final = ("pydantic_ai.exceptions.CallDeferred", "pydantic_ai.exceptions.ApprovalRequired")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=_PAUSES)

    runner = RunnerGate(enforcer, memory)

    patches.methods(
        "pydantic_ai.tool_manager",
        "ToolManager",
        _raw_execute=lambda original: _executing(gate, original),
        execute_tool_call=lambda original: _handing(gate, original),
        validate_tool_call=lambda original: _handing_out(runner, original),
    )
    # A toolset in between may have renamed the tool.
    witness = witnessed(enforcer, lambda _toolset, name, *_: str(name), lambda _, args, kwargs: args[2], renamed=True)
    patches.methods("pydantic_ai.toolsets.function", "FunctionToolset", call_tool=witness)
    patches.methods(
        "pydantic_ai._output",
        "",
        execute_output_function=lambda original: _answering(gate, original),
        execute_choice_action=lambda original: _choosing(gate, original),
    )
    patches.when(
        "pydantic_ai._function_schema",
        lambda module: watch(enforcer, patches, module.FunctionSchema, "function", name_of=lambda one: str(one.name)),
    )
    patches.when(
        "pydantic_ai.tools",
        lambda module: watch(enforcer, patches, module.Tool, "function", name_of=lambda one: str(one.name)),
    )
    patches.methods(
        "pydantic_ai._agent_graph",
        "ModelRequestNode",
        run=calling(lambda *_, **__: looping(_LOOP)),
        stream=_node_stream,
    )
    patches.methods("pydantic_ai.agent", "Agent", iter=enforcer.hearer.context(_said))
    patches.families("pydantic_ai.models", "Model", request=calling(_deferred), request_stream=_streaming)
    return Seams(
        seams=("ToolManager", "output functions", "Model.request", "Model.request_stream"),
        uncovered=("tools that a provider hosts", "realtime sessions", "validators of outputs and of arguments"),
    )


def _said(_agent: Any, user_prompt: Any = None, *_: Any, **__: Any) -> Iterator[str]:
    """What the user says in the prompt of a run: its texts, and no documents, pictures or files."""
    return iter([user_prompt] if isinstance(user_prompt, str) else user_prompt or ())


def _handing(gate: ToolGate, original: Method) -> Method:
    """Capabilities around a call: what they give in a tool's place is no result of it."""

    async def execute(manager: Any, validated: Any, **options: Any) -> Any:
        handed = gate.handed(validated.call.tool_name, validated.call.tool_call_id)
        result = await handed.arun(original(manager, validated, **options))
        return handed.refusal() or result

    return execute


def _answering(gate: ToolGate, original: Method) -> Method:
    """Functions that make the final answer: a refusal goes back to the model, as a wish of the function would."""

    async def answer(schema: Any, *, run_context: Any, args: dict[str, Any], **options: Any) -> Any:
        values = _defaulted(schema, args)
        # Of an answer that is still being written the call is not the one that the model makes.
        call_id = "" if run_context.partial_output else run_context.tool_call_id or ""
        execution = Execution(tool=schema.name, call_id=call_id, answer_id=None, arguments=lambda: values)

        async def body(given: dict[str, Any]) -> Any:
            typed = fitted(values, given, lambda changed: {**changed, **schema.validator.validate_python(changed)})
            return await original(schema, run_context=run_context, args=typed, **options)

        ran = await gate.acall(execution, body, shown)
        if ran.refused:
            refusing = replace(schema, function=_wishing(str(ran.seen)), is_async=True, takes_ctx=False)
            return await original(refusing, run_context=run_context, args=args, **options)
        return ran.output()

    return answer


def _choosing(gate: ToolGate, original: Method) -> Method:
    """The action that a model picks."""

    async def choose(action: Any) -> Any:
        name = getattr(action, "__name__", "") or type(action).__name__
        execution = Execution(tool=name, call_id="", answer_id=None, arguments=dict)
        ran = await gate.acall(execution, lambda _: original(action), shown)
        if ran.refused:
            return await _wishing(str(ran.seen))()
        return ran.output()

    return choose


def _wishing(refusal: str) -> Callable[..., Awaitable[Any]]:
    """A function that wants the model to answer otherwise."""

    async def wish(*_: Any, **__: Any) -> Any:
        from pydantic_ai.exceptions import ModelRetry

        raise ModelRetry(refusal)

    return wish


def _executing(gate: ToolGate, original: Method) -> Method:
    async def execute(manager: Any, validated: Any, **options: Any) -> Any:
        # The form of a final answer is no tool: nothing is executed.
        if validated.tool.tool_def.kind == "output":
            return await original(manager, validated, **options)
        values = _named(validated)
        execution = Execution(
            tool=validated.call.tool_name,
            call_id=validated.call.tool_call_id,
            answer_id=None,
            arguments=lambda: values,
        )

        async def body(given: dict[str, Any]) -> Any:
            typed = fitted(values, given, lambda changed: _validated(validated, changed))
            return await original(manager, _with(validated, typed), **options)

        return (await gate.acall(execution, body, _view)).told

    return execute


def _handing_out(gate: RunnerGate, original: Method) -> Method:
    """Calls that the run hands to the host's own code, whose results come back with the next run."""

    async def validate(manager: Any, call: Any, **options: Any) -> Any:
        validated = await original(manager, call, **options)
        if not validated.args_valid or not _handed_out(validated):
            return validated
        execution = Execution(
            tool=call.tool_name,
            call_id=call.tool_call_id,
            answer_id=None,
            arguments=lambda: validated.validated_args or {},
        )
        outcome = await gate.enforcer.arun(gate.before(execution))
        if isinstance(outcome, str):
            from pydantic_ai.exceptions import ToolFailed

            error = manager._wrap_error_as_failed(call.tool_name, call, ToolFailed(outcome))
            return replace(validated, args_valid=False, validated_args=None, validation_error=error, deferral=None)
        if outcome.changed:
            call.args = outcome.arguments()
        return validated

    return validate


def _handed_out(validated: Any) -> bool:
    from pydantic_ai.exceptions import CallDeferred

    external = validated.tool is not None and validated.tool.tool_def.kind == "external"
    return external or isinstance(validated.deferral, CallDeferred)


def _named(validated: Any) -> dict[str, Any]:
    """The validated arguments, with the defaults of the tool's function."""
    schema: Any = getattr(getattr(validated.tool, "call_func", None), "__self__", None)
    return _defaulted(schema, validated.validated_args)


def _defaulted(schema: Any, values: dict[str, Any]) -> dict[str, Any]:
    function = getattr(schema, "function", None)
    if function is None or getattr(schema, "var_positional_field", None):
        return values
    signature = inspect.signature(function)
    skipped = next(iter(signature.parameters)) if schema.takes_ctx else None
    bound = signature.bind_partial(**{name: one for name, one in values.items() if name in signature.parameters})
    named = {**values, **named_arguments(bound)}
    return {name: value for name, value in named.items() if name != skipped}


def _validated(validated: Any, changed: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = validated.tool.args_validator.validate_python(changed)
    return {**changed, **made}


def _with(validated: Any, values: dict[str, Any]) -> Any:
    return replace(validated, validated_args=values)


def _view(result: Any) -> Any:
    """What the model is told: of a return with metadata, the value."""
    return shown(getattr(result, "return_value", result))


def _node_stream(original: Method) -> Method:
    def stream(*args: Any, **kwargs: Any) -> Any:
        # What a stream asks of its model, it asks while its events are read.
        return _Entered(original(*args, **kwargs), looping(_LOOP), whole=True)

    return stream


def _streaming(original: Method) -> Method:
    def ask(*args: Any, **kwargs: Any) -> Any:
        return _Entered(original(*args, **kwargs), _deferred(*args, **kwargs))

    return ask


def _deferred(*args: Any, **kwargs: Any) -> EnforcedScope:
    """The tools that an agent's own request offers: its graph executes them, and the form of an answer is none."""
    scope = current_scope()
    offered = [one for one in (*args, *kwargs.values()) if hasattr(one, "function_tools")]
    if scope.loop != _LOOP or not offered:
        return scope
    return deferring(tool.name for tool in (*offered[0].function_tools, *offered[0].output_tools))


class _Entered:
    """An async context manager that is entered in a scope; with `whole` its block is in the scope too."""

    def __init__(self, inner: Any, scope: EnforcedScope, *, whole: bool = False) -> None:
        self._inner = inner
        self._scope = scope
        self._whole = whole
        self._before = scope

    async def __aenter__(self) -> Any:
        self._before = enter(self._scope)
        try:
            return await self._inner.__aenter__()
        finally:
            if not self._whole:
                enter(self._before)

    async def __aexit__(self, *error: Any) -> Any:
        try:
            return await self._inner.__aexit__(*error)
        finally:
            if self._whole:
                enter(self._before)
