"""CrewAI: every tool, whether an agent calls it natively, by text, in a step of a plan, or a flow calls it.

Its hooks see arguments before validation and run before a cache is asked; both ways end in `BaseTool.run` or
`CrewStructuredTool.invoke`, right before the body. What these raise becomes the call's result, and is not cached.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from aegis.adapters._arguments import fitted, named_arguments
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._scope import deferring, scoped
from aegis.adapters._tools import ToolGate
from aegis.adapters._witness import witnessed
from aegis.adapters.seams import Seams

DISTRIBUTION: Final = "crewai"
SUPPORTED: Final = ((1, 15, 30), (2,))

# The model's call that is executed: its id, and what tells the answer apart.
_call: ContextVar[str] = ContextVar("aegis_crewai_call", default="")
# The values that the tool's own validation is to give: what was decided is not validated a second time.
_prepared: ContextVar[tuple[Any, dict[str, Any]] | None] = ContextVar("aegis_crewai_prepared", default=None)


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    hooks = _Hooks(ToolGate(enforcer, memory))

    def tools(module: Any) -> None:
        patches.replace(module.BaseTool, "_validate_kwargs", _given)
        for owner in (module.BaseTool, module.Tool):
            patches.replace(owner, "run", hooks.run)
            patches.replace(owner, "arun", hooks.arun)
        witness = witnessed(enforcer, lambda tool, *_: _sanitized(tool.name))
        patches.family(module.BaseTool, {"_run": witness, "_arun": witness})

    def structured(module: Any) -> None:
        patches.replace(module.CrewStructuredTool, "_parse_args", _given)
        patches.replace(module.CrewStructuredTool, "invoke", hooks.invoke)
        patches.replace(module.CrewStructuredTool, "ainvoke", hooks.ainvoke)

    def executor(module: Any) -> None:
        patches.replace(module.AgentExecutor, "_execute_single_native_tool_call", _identified(1))
        patches.replace(module, "get_llm_response", _asking)

    patches.when("crewai.tools.base_tool", tools)
    patches.when("crewai.tools.structured_tool", structured)
    patches.when("crewai.agents.agent_executor", executor)
    patches.when(
        "crewai.agents.step_executor",
        lambda module: patches.replace(module, "execute_single_native_tool_call", _identified(0)),
    )
    return Seams(
        seams=("BaseTool.run", "Tool.run", "CrewStructuredTool.invoke", "AgentExecutor"),
        uncovered=("a tool's function called past its tool (`tool.func`)", "results that CrewAI takes from its cache"),
    )


def _given(original: Method) -> Method:
    def validated(tool: Any, given: Any) -> Any:
        prepared = _prepared.get()
        if prepared is None or prepared[0] is not tool:
            return original(tool, given)
        _prepared.set(None)
        return prepared[1]

    return validated


def _identified(at: int) -> Callable[[Method], Method]:
    """Keep the id of the model's call, which is argument `at`, for the tool that is going to run."""

    def wrap(original: Method) -> Method:
        def execute(*args: Any, **kwargs: Any) -> Any:
            given = args[at]
            found = given.get("id") if isinstance(given, dict) else getattr(given, "id", None)
            token = _call.set(found if isinstance(found, str) else "")
            try:
                return original(*args, **kwargs)
            finally:
                _call.reset(token)

        return execute

    return wrap


def _asking(original: Method) -> Method:
    """A model is asked by an executor that runs the calls itself."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        names = {tool["function"]["name"] for tool in kwargs.get("tools") or ()}
        with scoped(deferring(names)):
            return original(*args, **kwargs)

    return ask


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def run(self, original: Method) -> Method:
        def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            call = _Run(tool, args, kwargs)
            return self._gate.call(
                call.execution, lambda given: call.prepared(given, lambda values: original(tool, **values)), call.view
            ).output()

        return run

    def arun(self, original: Method) -> Method:
        async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            call = _Run(tool, args, kwargs)

            async def body(given: dict[str, Any]) -> Any:
                return await call.prepared(given, lambda values: original(tool, **values))

            return (await self._gate.acall(call.execution, body, call.view)).output()

        return arun

    def invoke(self, original: Method) -> Method:
        def invoke(tool: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            call = _Invocation(tool, input)
            return self._gate.call(
                call.execution,
                lambda given: call.prepared(given, lambda values: original(tool, values, *args, **kwargs)),
                call.view,
            ).output()

        return invoke

    def ainvoke(self, original: Method) -> Method:
        async def ainvoke(tool: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            call = _Invocation(tool, input)

            async def body(given: dict[str, Any]) -> Any:
                return await call.prepared(given, lambda values: original(tool, values, *args, **kwargs))

            return (await self._gate.acall(call.execution, body, call.view)).output()

        return ainvoke


class _Invocation:
    """One call of a structured tool with its final arguments. Making it raises what the tool's validation raises."""

    def __init__(self, tool: Any, given: Any) -> None:
        self.tool = tool
        self.values = self.validated(given)
        self.execution = Execution(
            # As models are told its name.
            tool=_sanitized(tool.name),
            call_id=_call.get(),
            answer_id=None,
            arguments=lambda: self.values,
        )
        # The id stands for this tool, not for what its body calls.
        _call.set("")

    def validated(self, given: Any) -> dict[str, Any]:
        """The arguments as the body would get them."""
        values: dict[str, Any] = self.tool._parse_args(given)
        return values

    def prepared(self, given: dict[str, Any], run: Callable[[dict[str, Any]], Any]) -> Any:
        """The result of `run`, in which the tool's validation gives what may run."""
        values = fitted(self.values, given, self.validated)
        token = _prepared.set((self.tool, values))
        try:
            return run(values)
        finally:
            _prepared.reset(token)

    def view(self, result: Any) -> str:
        """The result as an agent is told it."""
        text: str = self.tool.format_output_for_agent(result)
        return text


class _Run(_Invocation):
    """One call of a tool object."""

    def __init__(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if args:
            # The package does not validate what it is given by position; by name it does.
            kwargs = named_arguments(inspect.signature(tool._run).bind(*args, **kwargs))
        super().__init__(tool, kwargs)

    def validated(self, given: Any) -> dict[str, Any]:
        """The arguments as the body would get them: validated, and those that it defaults itself."""
        values: dict[str, Any] = self.tool._validate_kwargs(given)
        return values


def _sanitized(name: str) -> str:
    from crewai.utilities.string_utils import sanitize_tool_name

    found: str = sanitize_tool_name(name)
    return found
