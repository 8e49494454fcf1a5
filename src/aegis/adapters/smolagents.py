"""smolagents: tools of calling agents and of code agents, managed agents, and the code that an executor runs.

A tool's call begins in `Tool.__call__`, after an agent has put its variables in. Code is decided as a call of
`python_interpreter` before it runs, and the tools that it calls one by one: it is given them as plain functions, of
which nothing but their calls can be reached. What failing code printed is observed like what it gives.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, Final

from aegis.enforce.arguments import bound_arguments, fitted, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import (
    EnforcedScope,
    Holding,
    begun,
    call_id_of,
    calling,
    current_scope,
    deferring,
    executing,
    reached,
    running,
    scoped,
    streaming,
)
from aegis.enforce.tools import ToolGate
from aegis.enforce.witness import by_name, witnessed
from aegis.errors import CallRefused, UnhookedFramework

DISTRIBUTION: Final = "smolagents"
SUPPORTED: Final = ((1, 26), (2,))

CODE: Final = "python_interpreter"
_SANITIZE: Final = "sanitize_inputs_outputs"
_LOG: Final = "_print_outputs"

# The calls of the turn that an agent executes: tool, arguments as they are handed on, id.
_turn: ContextVar[list[tuple[str, Any, str]]] = ContextVar("aegis_smolagents_turn")


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory)
    hooks = _Hooks(gate)

    def agents(module: Any) -> None:
        patches.replace(module.ToolCallingAgent, "process_tool_calls", _identified)
        patches.family(module.ToolCallingAgent, {"execute_tool_call": lambda original: _executing(gate, original)})
        patches.replace(module.ToolCallingAgent, "_step_stream", streaming(_stepping))
        patches.replace(module.CodeAgent, "_step_stream", _known_executor)
        patches.family(module.MultiStepAgent, {"__call__": hooks.agent})

    def executors(module: Any) -> None:
        patches.family(module.PythonExecutor, {"__call__": hooks.code})
        patches.replace(module.LocalPythonExecutor, "send_tools", _sending)
        patches.replace(module, "timeout", _timed)

    def tools(module: Any) -> None:
        patches.family(module.BaseTool, {"__call__": hooks.tool})
        patches.family(module.Tool, {"forward": witnessed(enforcer, lambda tool, *_: str(tool.name), by_name)})

    patches.when("smolagents.tools", tools)
    patches.when("smolagents.agents", agents)
    patches.families("smolagents.models", "Model", generate=calling(_deferred), generate_stream=streaming(_deferred))
    patches.when("smolagents.local_python_executor", executors)
    return Seams(
        seams=("Tool.__call__", "MultiStepAgent.__call__", "PythonExecutor.__call__"),
        barred=("executors that are no `PythonExecutor`",),
        uncovered=(
            "single tools inside code that a remote executor runs",
            "the `forward` of a function with `@tool` called past its tool",
        ),
    )


def _identified(original: Method) -> Method:
    def process(agent: Any, message: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        calls = [(one.function.name, one.function.arguments, one.id) for one in message.tool_calls or ()]
        with Holding(_turn, calls):
            # Inside, every call is executed with a copy of this context.
            yield from original(agent, message, *args, **kwargs)

    return process


def _executing(gate: ToolGate, original: Method) -> Method:
    """A call in the hands of an agent, of whatever class: what it gives without a decision is no result."""

    def execute(agent: Any, tool_name: str, arguments: Any) -> Any:
        call_id = call_id_of(tool_name) or _id_of(tool_name, arguments)
        handed = gate.handed(tool_name, call_id)
        with scoped(executing(tool_name, call_id)):
            result = handed.run(lambda: original(agent, tool_name, arguments))
        return handed.refusal() or result

    return execute


def _id_of(tool: str, arguments: Any) -> str:
    """The id of the call that is executed: by its very arguments, which an agent hands on as they are."""
    named = [one for one in _turn.get([]) if one[0] == tool]
    exact = [one for one in named if one[1] is arguments]
    found = exact or (named if len(named) == 1 else [])
    return found[0][2] if found else ""


def _stepping(agent: Any, *_: Any, **__: Any) -> EnforcedScope:
    return running({*agent.tools, *agent.managed_agents})


def _known_executor(original: Method) -> Method:
    def step(agent: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        from smolagents.local_python_executor import PythonExecutor

        if not isinstance(agent.python_executor, PythonExecutor):
            raise UnhookedFramework("an executor that is no `PythonExecutor` is not covered, so its agent is refused")
        yield from original(agent, *args, **kwargs)

    return step


def _sending(original: Method) -> Method:
    def send(executor: Any, tools: Mapping[str, Any]) -> Any:
        return original(executor, {name: _plain(one) for name, one in tools.items()})

    return send


def _plain(tool: Any) -> Callable[..., Any]:
    """A tool or an agent as a function: code cannot reach a body past its call (`tool.forward`, `agent.tools`)."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return tool(*args, **kwargs)

    return call


def _timed(original: Method) -> Method:
    """Code with a time limit runs in a thread of its own, which knows nothing of the session without this."""

    def timeout(seconds: int) -> Callable[[Method], Method]:
        limited = original(seconds)

        def decorator(code: Method) -> Method:
            return lambda *args, **kwargs: limited(functools.partial(copy_context().run, code))(*args, **kwargs)

        return decorator

    return timeout


def _deferred(*_: Any, **options: Any) -> EnforcedScope:
    names = {getattr(tool, "name", "") for tool in options.get("tools_to_call_from") or ()}
    return deferring(current_scope().runs & names)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Executed:
    """What became of code: what it gave, or how it failed, and what it had printed."""

    given: Any = None
    error: Exception | None = None
    logs: str

    def seen(self) -> dict[str, Any]:
        """What a model is told of it."""
        if self.error is not None:
            return {"error": str(self.error), "logs": self.logs}
        return {"output": shown(self.given.output), "logs": self.logs}

    def changed(self, seen: dict[str, Any]) -> _Executed:
        """The same with what a model may be told of it."""
        logs = str(seen.get("logs", ""))
        if self.error is not None:
            return _Executed(error=CallRefused(str(seen.get("error", ""))), logs=logs)
        final = self.given.is_final_answer
        given = type(self.given)(output=seen.get("output"), logs=logs, is_final_answer=final)
        return _Executed(given=given, logs=logs)

    def output(self) -> Any:
        """What the executor gives; raises how the code failed."""
        if self.error is not None:
            raise self.error
        return self.given


def _executed(original: Method, executor: Any, code: str) -> _Executed:
    try:
        given = original(executor, code)
    except Exception as error:
        return _Executed(error=error, logs=str(_log(executor).get(_LOG, "")))
    return _Executed(given=given, logs=given.logs)


def _log(executor: Any) -> dict[str, Any]:
    """Where an executor of this process keeps what code printed; empty for one that keeps nothing."""
    state = getattr(executor, "state", None)
    return state if isinstance(state, dict) and _LOG in state else {}


def _keep_log(executor: Any, text: str) -> None:
    if state := _log(executor):
        state[_LOG].value = text


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def tool(self, original: Method) -> Method:
        def call(tool: Any, *args: Any, **kwargs: Any) -> Any:
            # The agent's own word for the end of its run: it does nothing.
            if type(tool).__module__ == "smolagents.default_tools" and tool.name == "final_answer":
                reached(call_id_of(tool.name))
                with scoped(begun()):
                    return original(tool, *args, **kwargs)
            options = {name: kwargs.pop(name) for name in (_SANITIZE,) if name in kwargs}
            values = _named(tool, args, kwargs)

            def run(given: dict[str, Any]) -> Any:
                return original(tool, **fitted(values, given, lambda changed: changed), **options)

            return self._ran(tool.name, values, run, told=bool(options.get(_SANITIZE)))

        return call

    def agent(self, original: Method) -> Method:
        def call(agent: Any, *args: Any, **kwargs: Any) -> Any:
            values = bound_arguments(original, (agent, *args), kwargs)
            values.pop("self", None)

            def run(given: dict[str, Any]) -> Any:
                return original(agent, **fitted(values, given, lambda changed: changed))

            return self._ran(agent.name or type(agent).__name__, values, run, told=True)

        return call

    def code(self, original: Method) -> Method:
        def execute(executor: Any, code_action: str) -> Any:
            ran = self._gate.call(
                Execution(tool=CODE, call_id="", answer_id=None, arguments=lambda: {"code": code_action}),
                lambda given: _executed(original, executor, given["code"]),
                lambda executed: executed.seen(),
            )
            if ran.changed:
                # The agent takes the log of failing code from here.
                _keep_log(executor, "" if ran.withheld else str(ran.seen.get("logs", "")))
            seen = ran.output()
            return (ran.result.changed(seen) if ran.changed else ran.result).output()

        return execute

    def _ran(self, name: str, values: dict[str, Any], run: Callable[[dict[str, Any]], Any], *, told: bool) -> Any:
        """The result; a refusal is told to an agent as the result, and raised into code that goes on with it."""
        execution = Execution(tool=name, call_id=call_id_of(name), answer_id=None, arguments=lambda: values)
        ran = self._gate.call(execution, run, lambda result: str(result).strip())
        if told:
            return ran.told
        return ran.output()


def _named(tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by name and defaulted, as `forward` takes them; raises `TypeError` for too many."""
    if len(args) == 1 and not kwargs and isinstance(args[0], dict) and set(args[0]) <= set(tool.inputs):
        kwargs, args = args[0], ()  # the package takes one dictionary for all arguments
    names = list(tool.inputs)
    if len(args) > len(names):
        raise TypeError("more arguments than the tool has")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(tool.forward).parameters.items()
        if name in names and parameter.default is not parameter.empty
    }
    return {**defaults, **given}
