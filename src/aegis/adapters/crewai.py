"""CrewAI: every tool, whether an agent calls it natively, by text, in a step of a plan, or a flow calls it.

Its hooks see arguments before validation and run before a cache is asked; both ways end in `BaseTool.run` or
`CrewStructuredTool.invoke`, right before the body. What these raise becomes the call's result, and is not cached. A
result that a cache keeps stands in place of the body: its call is decided and the result observed like any other.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final

from aegis.enforce.arguments import fitted, jsonable, named_arguments
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, comes_from
from aegis.enforce.scope import EnforcedScope, Holding, call_id_of, calling, deferring, executing
from aegis.enforce.tools import Ran, ToolGate
from aegis.enforce.witness import by_name, watch, witnessed
from aegis.enforce.words import user_texts

DISTRIBUTION: Final = "crewai"
SUPPORTED: Final = ((1, 15, 30), (2,))

# The values that the tool's own validation is to give: what was decided is not validated a second time.
_prepared: ContextVar[tuple[Any, dict[str, Any]] | None] = ContextVar("aegis_crewai_prepared", default=None)

# What a cache keeps for the call that is going to be made: the tool, its arguments, the result.
_kept: ContextVar[tuple[str, Any, Any] | None] = ContextVar("aegis_crewai_kept", default=None)
# Whether the caller makes a call again when it fails: a refusal is told to it as a failure, and not raised.
_again: ContextVar[bool] = ContextVar("aegis_crewai_again", default=False)


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    hooks = _Hooks(ToolGate(enforcer, memory, pauses=("crewai.flow.async_feedback.types.HumanFeedbackPending",)))

    def tools(module: Any) -> None:
        patches.replace(module.BaseTool, "_validate_kwargs", _given)
        witness = witnessed(enforcer, lambda tool, *_: _sanitized(tool.name), by_name)
        # Tools may have a body in a `run` of their own.
        patches.family(module.BaseTool, {"run": hooks.run, "arun": hooks.arun, "_run": witness, "_arun": witness})
        watch(enforcer, patches, module.Tool, "func", name_of=lambda tool: _sanitized(tool.name))

    patches.when("crewai.tools.base_tool", tools)
    patches.methods(
        "crewai.tools.structured_tool",
        "CrewStructuredTool",
        _parse_args=_given,
        invoke=hooks.invoke,
        ainvoke=hooks.ainvoke,
    )
    patches.methods("crewai.agents.cache.cache_handler", "CacheHandler", read=_reading)
    patches.methods("crewai.tools.tool_usage", "ToolUsage", _use=_using, _ause=_ausing)
    # The id of the model's call is kept for the tool that is going to run.
    patches.methods(
        "crewai.agents.agent_executor",
        "AgentExecutor",
        _execute_single_native_tool_call=calling(lambda *args, **_: executing(*_named(args[1]))),
    )
    patches.methods("crewai.agents.agent_executor", "", get_llm_response=calling(_deferred))
    patches.methods(
        "crewai.agents.step_executor",
        "",
        execute_single_native_tool_call=calling(lambda *args, **_: executing(*_named(args[0]))),
    )
    crew, agent = enforcer.hearer.entry(_asked_of_crew), enforcer.hearer.entry(_asked_of_agent)
    patches.methods("crewai.crew", "Crew", kickoff=crew, kickoff_async=crew, akickoff=crew)
    patches.methods("crewai.agent.core", "Agent", kickoff=agent, kickoff_async=agent, akickoff=agent)
    return Seams(
        seams=("BaseTool.run", "Tool.run", "CrewStructuredTool.invoke", "AgentExecutor", "CacheHandler.read"),
        uncovered=(
            "a function that the host calls by its own name",
            "what a hook says in place of a result, which is its own word",
        ),
    )


_MOST_INPUT: Final = 1_000  # characters of an input that can be words; a longer one is a document


def _asked_of_crew(crew: Any, inputs: Any = None, *_: Any, **__: Any) -> Iterator[str]:
    """What the host asks for: the descriptions of the tasks, with inputs that can be words in their places."""
    given = {name: str(value) for name, value in (inputs or {}).items() if isinstance(value, (str, int, float))}
    for task in crew.tasks:
        said = str(task.description)
        for name, value in given.items():
            if len(value) <= _MOST_INPUT:
                said = said.replace("{" + name + "}", value)
        yield said


def _asked_of_agent(_agent: Any, messages: Any = None, *_: Any, **__: Any) -> Iterator[str]:
    return user_texts(messages or [])


def _given(original: Method) -> Method:
    def validated(tool: Any, given: Any) -> Any:
        prepared = _prepared.get()
        if prepared is None or prepared[0] is not tool:
            return original(tool, given)
        _prepared.set(None)
        return prepared[1]

    return validated


def _named(call: Any) -> tuple[str, Any]:
    """The tool and the id of a model's call; the package makes ids up that are no id of the model's."""
    from crewai.utilities.agent_utils import extract_tool_call_info

    found = extract_tool_call_info(call)
    given = call if isinstance(call, dict) else getattr(call, "__dict__", {})
    ids = [given[name] for name in ("call_id", "id", "toolUseId") if given.get(name)]
    return ("" if found is None else found[1]), (ids[0] if ids else "")


def _deferred(*_: Any, **options: Any) -> EnforcedScope:
    """A model is asked by an executor that runs the calls itself."""
    return deferring({tool["function"]["name"] for tool in options.get("tools") or ()})


def _reading(original: Method) -> Method:
    """Nothing is taken from a cache past the gate: what it keeps waits for the decision."""

    def read(cache: Any, tool: str, input: str) -> Any:  # noqa: A002
        found = original(cache, tool=tool, input=input)
        _kept.set(None if found is None else (_sanitized(tool), _parsed(input), found))

    return read


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return None  # the arguments of no call: the body runs


def _take_kept(tool: str, given: Any) -> tuple[Any] | None:
    """What a cache keeps for exactly this call, if it does; it stands for one execution."""
    kept = _kept.get()
    _kept.set(None)
    return (kept[2],) if kept is not None and kept[:2] == (tool, given) else None


def _using(original: Method) -> Method:
    def use(*args: Any, **kwargs: Any) -> Any:
        with Holding(_again, True):
            return original(*args, **kwargs)

    return use


def _ausing(original: Method) -> Method:
    async def use(*args: Any, **kwargs: Any) -> Any:
        with Holding(_again, True):
            return await original(*args, **kwargs)

    return use


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def run(self, original: Method) -> Method:
        def run(tool: Any, *args: Any, **kwargs: Any) -> Any:
            return self._called(_Run(tool, args, kwargs), lambda values: original(tool, **values))

        return run

    def arun(self, original: Method) -> Method:
        async def arun(tool: Any, *args: Any, **kwargs: Any) -> Any:
            return await self._acalled(_Run(tool, args, kwargs), lambda values: original(tool, **values))

        return arun

    def invoke(self, original: Method) -> Method:
        def invoke(tool: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            return self._called(_Invocation(tool, input), lambda values: original(tool, values, *args, **kwargs))

        return invoke

    def ainvoke(self, original: Method) -> Method:
        async def ainvoke(tool: Any, input: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002
            def body(values: dict[str, Any]) -> Any:
                plain = not inspect.iscoroutinefunction(tool.func)
                return original(_InContext(tool) if plain else tool, values, *args, **kwargs)

            return await self._acalled(_Invocation(tool, input), body)

        return ainvoke

    def _called(self, call: _Invocation, body: Method) -> Any:
        with Holding(_again, False):
            ran = self._gate.call(call.execution, lambda given: call.prepared(given, body), call.view)
        return call.output(ran)

    async def _acalled(self, call: _Invocation, body: Method) -> Any:
        with Holding(_again, False):
            ran = await self._gate.acall(call.execution, lambda given: call.aprepared(given, body), call.view)
        return call.output(ran)


class _InContext:
    """A structured tool whose function, which the package runs in a thread of a pool, keeps the context of its call."""

    def __init__(self, tool: Any) -> None:
        self._tool = tool
        self.func = functools.partial(copy_context().run, tool.func)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


# Where the package makes the tools by which one agent of a crew has another one do something.
_DELEGATING: Final = tuple(f"crewai.tools.agent_tools.{name}" for name in ("delegate_work_tool", "ask_question_tool"))


class _Invocation:
    """One call of a structured tool with its final arguments. Making it raises what the tool's validation raises."""

    def __init__(self, tool: Any, given: Any) -> None:
        self.tool = tool
        self.values = self.validated(given)
        self.execution = Execution(
            # As models are told its name.
            tool=_sanitized(tool.name),
            call_id=call_id_of(_sanitized(tool.name)),
            answer_id=None,
            arguments=lambda: self.values,
            handoff=comes_from(getattr(tool, "_tool", tool), *_DELEGATING),
        )
        self._again = _again.get()
        self._kept = _take_kept(self.execution.tool, given)

    def validated(self, given: Any) -> dict[str, Any]:
        """The arguments as the body would get them."""
        values: dict[str, Any] = self.tool._parse_args(given)
        return values

    def prepared(self, given: dict[str, Any], run: Callable[[dict[str, Any]], Any]) -> Any:
        """What is kept for these arguments, or the result of `run` with them."""
        if (kept := self._kept_for(given)) is not None:
            return kept[0]
        with self._validated(given) as values:
            return run(values)

    async def aprepared(self, given: dict[str, Any], run: Callable[[dict[str, Any]], Any]) -> Any:
        """The async twin of `prepared`."""
        if (kept := self._kept_for(given)) is not None:
            return kept[0]
        with self._validated(given) as values:
            return await run(values)

    def output(self, ran: Ran) -> Any:
        """What the tool gives back; a refusal is raised, or told as a failure to who would only try again."""
        if self._again and ran.failed:
            from crewai.tools.tool_failure import ToolFailure

            return ToolFailure(message=str(ran.seen))
        return ran.output()

    def _kept_for(self, given: dict[str, Any]) -> tuple[Any] | None:
        """What a cache keeps, unless other arguments may run than the call had: those were never tried."""
        return self._kept if self._kept is not None and given == jsonable(self.values) else None

    @contextmanager
    def _validated(self, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The values for the body; the tool's own validation gives them, too."""
        values = fitted(self.values, given, self.validated)
        with Holding(_prepared, (self.tool, values)):
            yield values

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
