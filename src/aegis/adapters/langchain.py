"""LangChain and LangGraph: every `BaseTool`, whoever runs it: agents, tool nodes, chains, sub-agents, or a direct call.

Middleware and `ToolNode(wrap_tool_call=...)` see arguments before they are validated, in the agents that were given
them. All of them end in `BaseTool.run` or `arun`, which validate and then run the body: the seam is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from aegis.enforce.arguments import jsonable, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, comes_from
from aegis.enforce.scope import EnforcedScope, Holding, calling, current_scope, deferring, reached, running, streaming
from aegis.enforce.tools import Handed, Ran, ToolGate
from aegis.enforce.witness import watch, witnessed
from aegis.enforce.words import user_texts

# Model calls of LangChain: those that a tool node runs are enforced there, the others in the answer.
#
# A loop of the host's own runs a tool by the call that it was handed. That call is decided with the arguments that
# the tool is going to run with, so that it is known again there, and people are asked about it once.

# The arguments with which a tool runs what it is given; raises where it would not run.
FinalArguments = Callable[[Any, dict[str, Any]], dict[str, Any]]

_bound: WeakValueDictionary[str, Any] = WeakValueDictionary()


_SAID: Final = ("input", "question", "query", "prompt", "task")  # what graphs call the user's text, beside messages


def _said(_graph: Any, given: Any = None, *_: Any, **__: Any) -> Iterator[str]:
    """What the user says in the input of a graph; what resumes one is no words."""
    if isinstance(given, dict):
        yield from user_texts(given.get("messages") or [])
        yield from (given[name] for name in _SAID if isinstance(given.get(name), str))


def hook_models(enforcer: Enforcer, patches: Patches, final: FinalArguments) -> tuple[str, ...]:
    """Hook the places where an agent runs and where a model is asked; gives their names."""

    def deferred(*_: Any, **options: Any) -> EnforcedScope:
        return _deferred(options.get("tools") or (), final)

    models = "langchain_core.language_models.chat_models"
    whole, streamed = calling(deferred), streaming(deferred)
    patches.families(models, "BaseChatModel", bind_tools=_binding)
    patches.methods(
        models,
        "BaseChatModel",
        _generate_with_cache=whole,
        _agenerate_with_cache=whole,
        stream=streamed,
        astream=streamed,
    )
    graph = streaming(lambda graph, *_, **__: running(_tools_of(graph)))
    heard = enforcer.hearer.entry(_said, graph)
    patches.methods("langgraph.pregel.main", "Pregel", stream=heard, astream=heard)
    return ("BaseChatModel", "Pregel.stream", "Pregel.astream")


def _tools_of(graph: Any) -> set[str]:
    """The tools that the tool nodes of a graph run."""
    module: Any = sys.modules.get("langgraph.prebuilt.tool_node")
    if module is None:
        return set()
    nodes = [node.bound for node in graph.nodes.values()]
    return {name for node in nodes if isinstance(node, module.ToolNode) for name in node.tools_by_name}


def _binding(original: Method) -> Method:
    """The tools that a model is told of; of two with one name, the one that was bound last."""

    def bind_tools(model: Any, tools: Any, *args: Any, **kwargs: Any) -> Any:
        from langchain_core.tools import BaseTool

        given = list(tools)
        _bound.update({one.name: one for one in given if isinstance(one, BaseTool)})
        return original(model, given, *args, **kwargs)

    return bind_tools


def _deferred(tools: Any, final: FinalArguments) -> EnforcedScope:
    """The bound tools that the graph around a model call runs, and how the others would run."""
    names = {_name_of(tool) for tool in tools}
    runs = current_scope().runs & names
    others = {name: tool for name in names - runs if (tool := _bound.get(name)) is not None}
    return deferring(runs)._replace(final={name: partial(final, tool) for name, tool in others.items()})


def _name_of(tool: Any) -> str:
    """The name of a bound tool in whatever form its provider takes it."""
    if not isinstance(tool, dict):
        return str(getattr(tool, "name", ""))
    function = tool.get("function")
    return str((function if isinstance(function, dict) else tool).get("name", ""))


DISTRIBUTION: Final = "langchain-core"
SUPPORTED: Final = ((1, 7), (2,))

_Values = tuple[tuple[Any, ...], dict[str, Any]]
# What the body of the tool that is about to run is given, or why it is given nothing.
_prepared: ContextVar[tuple[Any, _Values | Exception] | None] = ContextVar("aegis_langchain_prepared", default=None)


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    gate = ToolGate(enforcer, memory, pauses=("langgraph.errors.GraphBubbleUp",))
    hooks = _Hooks(gate)

    def tools(module: Any) -> None:
        patches.replace(module.BaseTool, "_to_args_and_kwargs", _given)
        witness = witnessed(enforcer, lambda tool, *_: str(tool.name), _body_given)
        entries = {"run": hooks.run, "arun": hooks.arun, "invoke": hooks.invoke, "ainvoke": hooks.ainvoke}
        # Tools may have a body in an entry of their own.
        patches.family(module.BaseTool, {**entries, "_run": witness, "_arun": witness})

    def functions(owner: str) -> Callable[[Any], None]:
        def hold(module: Any) -> None:
            tool = getattr(module, owner)
            watch(enforcer, patches, tool, "func", "coroutine", name_of=lambda one: str(one.name))

        return hold

    patches.when("langchain_core.tools.base", tools)
    patches.when("langchain_core.tools.structured", functions("StructuredTool"))
    patches.when("langchain_core.tools.simple", functions("Tool"))
    patches.methods(
        "langgraph.prebuilt.tool_node",
        "ToolNode",
        _run_one=lambda original: _wrapped(gate, original),
        _arun_one=lambda original: _awrapped(gate, original),
    )
    models = hook_models(enforcer, patches, _final_of)
    return Seams(
        seams=("BaseTool.run", "BaseTool.arun", "ToolNode", *models),
        uncovered=(
            "a function that the host calls by its own name, where no middleware of a tool node stands",
            "what a graph that is interrupted before its tools shows of a call (`interrupt_before`), until it is run",
        ),
    )


def _given(original: Method) -> Method:
    """What was decided is what the body gets: it is not validated a second time."""

    def to_args_and_kwargs(tool: Any, tool_input: Any, tool_call_id: Any) -> Any:
        prepared = _prepared.get()
        if prepared is None or prepared[0] is not tool:
            return original(tool, tool_input, tool_call_id)
        _prepared.set(None)
        if isinstance(prepared[1], Exception):
            raise prepared[1]
        return prepared[1]

    return to_args_and_kwargs


def _body_given(_: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a body gets, by the names of the tool's arguments."""
    tool, *values = args
    return {**dict(zip(tool.args, values, strict=False)), **kwargs} if values else kwargs


def _wrapped(gate: ToolGate, original: Method) -> Method:
    """Middleware of a tool node: what it gives in a tool's place, without a call that was decided, is no result."""

    def run_one(node: Any, call: Any, *args: Any) -> Any:
        if node._wrap_tool_call is None or call["name"] not in node.tools_by_name:
            return original(node, call, *args)
        handed = gate.handed(call["name"], call["id"])
        return _of_host(handed, call, handed.run(lambda: original(node, call, *args)))

    return run_one


def _awrapped(gate: ToolGate, original: Method) -> Method:
    async def arun_one(node: Any, call: Any, *args: Any) -> Any:
        if (node._wrap_tool_call or node._awrap_tool_call) is None or call["name"] not in node.tools_by_name:
            return await original(node, call, *args)
        handed = gate.handed(call["name"], call["id"])
        return _of_host(handed, call, await handed.arun(original(node, call, *args)))

    return arun_one


def _of_host(handed: Handed, call: Any, result: Any) -> Any:
    """The result of a call that went through middleware; an error that it gives in the tool's place is its refusal."""
    answers = [one for given in (result if isinstance(result, list) else [result]) for one in _messages(given) or ()]
    refusal = handed.refusal(answered=any(getattr(one, "status", "") != "error" for one in answers))
    if not refusal:
        return result
    from langchain_core.messages import ToolMessage

    return ToolMessage(refusal, tool_call_id=call["id"], name=call["name"], status="error")


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def run(self, original: Method) -> Method:
        def run(tool: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
            call = _Call(tool, tool_input, kwargs)
            if call.invalid is not None and _is_packages_own(original):
                reached(call.execution.call_id)
                return call.prepared(call.invalid, lambda: original(tool, tool_input, *args, **kwargs))
            ran = self._gate.call(
                call.execution,
                lambda given: call.prepared(
                    call.values(given), lambda: original(tool, call.input(given), *args, **kwargs)
                ),
                _view,
            )
            return call.output(ran)

        return run

    def arun(self, original: Method) -> Method:
        async def arun(tool: Any, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
            call = _Call(tool, tool_input, kwargs)
            if call.invalid is not None and _is_packages_own(original):
                reached(call.execution.call_id)
                return await call.aprepared(call.invalid, original(tool, tool_input, *args, **kwargs))

            async def body(given: dict[str, Any]) -> Any:
                return await call.aprepared(call.values(given), original(tool, call.input(given), *args, **kwargs))

            return call.output(await self._gate.acall(call.execution, body, _view))

        return arun

    def invoke(self, original: Method) -> Method:
        if _is_packages_own(original):
            return original

        def invoke(tool: Any, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
            call, again = _entered(tool, input, config)
            ran = self._gate.call(
                call.execution, lambda given: original(tool, again(call.input(given)), config, **kwargs), _view
            )
            return call.output(ran)

        return invoke

    def ainvoke(self, original: Method) -> Method:
        if _is_packages_own(original):
            return original

        async def ainvoke(tool: Any, input: Any, config: Any = None, **kwargs: Any) -> Any:  # noqa: A002
            call, again = _entered(tool, input, config)

            async def body(given: dict[str, Any]) -> Any:
                return await original(tool, again(call.input(given)), config, **kwargs)

            return call.output(await self._gate.acall(call.execution, body, _view))

        return ainvoke


def _is_packages_own(entry: Method) -> bool:
    """Whether an entry is the package's, which leads to `run`."""
    return str(entry.__module__).startswith("langchain_core.tools.")


def _entered(tool: Any, given: Any, config: Any) -> tuple[_Call, Callable[[Any], Any]]:
    """The call that an entry is asked for, and what makes its input of arguments again."""
    if not isinstance(given, dict) or given.get("type") != "tool_call":
        return _Call(tool, given, {"config": config}), lambda values: values
    call = _Call(tool, given["args"], {"config": config, "tool_call_id": given["id"]})
    return call, lambda values: {**given, "args": values}


class _Call:
    """One call of a tool: its final arguments, and its output in the framework's form."""

    def __init__(self, tool: Any, tool_input: Any, options: dict[str, Any]) -> None:
        self._tool = tool
        self._input = tool_input
        self._id = options.get("tool_call_id")
        self.invalid: Exception | None = None
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        try:
            copied = dict(tool_input) if isinstance(tool_input, dict) else tool_input
            self._args, self._kwargs = tool._to_args_and_kwargs(copied, self._id)
            self._named = self._of_model()
        except Exception as error:
            # The framework tells the model what is wrong, in its own words.
            self.invalid = error
        self.execution = Execution(
            tool=tool.name,
            call_id=self._id or "",
            answer_id=_answer_of(options.get("config")),
            arguments=self._final,
            handoff=comes_from(tool, "langgraph_supervisor.handoff", "langgraph_swarm.handoff"),
        )

    def input(self, given: dict[str, Any]) -> Any:
        """What callbacks are told: the arguments that run."""
        return {**self._input, **given} if isinstance(self._input, dict) else self._input

    def values(self, given: dict[str, Any]) -> _Values:
        """What the body gets of the arguments that may run; injected ones stay. Raises for what does not fit."""
        if self._args:
            return tuple(given.values()), dict(self._kwargs)
        form = jsonable(self._named)
        injected = {name: value for name, value in self._kwargs.items() if name not in self._named}
        if given == form and form == self._named:
            return (), {**injected, **given}
        if given == form:
            return (), dict(self._kwargs)
        args, kwargs = self._tool._to_args_and_kwargs({**injected, **given}, self._id)
        if jsonable(self._tool._filter_injected_args(kwargs)) != given:
            raise ValueError("the changed arguments do not fit the tool")
        return args, kwargs

    def prepared(self, values: _Values | Exception, call: Any) -> Any:
        """The result of `call`, in which the tool gets `values`."""
        with Holding(_prepared, (self._tool, values)):
            return call()

    async def aprepared(self, values: _Values | Exception, call: Any) -> Any:
        """The async twin of `prepared`."""
        with Holding(_prepared, (self._tool, values)):
            return await call

    def output(self, ran: Ran) -> Any:
        """The tool's output as its caller gets it: a message where the call has an id."""
        if not ran.replaced:
            return ran.result
        return _message(self._tool, self._id, ran) if self._id else ran.seen

    def _final(self) -> dict[str, Any]:
        if self.invalid is not None:
            raise self.invalid
        return self._named

    def _of_model(self) -> dict[str, Any]:
        """The final arguments by name, without those that the framework injects."""
        if self._args:
            names = list(self._tool.args)
            return {(names[at] if at < len(names) else f"argument_{at}"): one for at, one in enumerate(self._args)}
        named: dict[str, Any] = self._tool._filter_injected_args(self._kwargs)
        return named


def _final_of(tool: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments with which a tool would run; raises where it would not."""
    final: dict[str, Any] = jsonable(_Call(tool, given, {}).execution.arguments())
    return final


def _answer_of(config: Any) -> str | None:
    """The task of a graph in which a call runs: the same when it is run again, another for every answer."""
    configurable = (config or {}).get("configurable") or {}
    task: str | None = configurable.get("__pregel_task_id")
    return task


def _view(output: Any) -> Any:
    """What of a tool's output the model is going to see."""
    messages = _messages(output)
    if messages is None:
        return shown(output)
    contents = [shown(message.content) for message in messages]
    return contents[0] if len(contents) == 1 else contents


def _messages(output: Any) -> list[Any] | None:
    """The messages in an output, whether it is one, a list of them, or a command that holds some."""
    from langchain_core.messages import BaseMessage

    if isinstance(output, BaseMessage):
        return [output]
    if isinstance(output, list) and output and all(isinstance(one, BaseMessage) for one in output):
        return output
    update = getattr(output, "update", None)
    if isinstance(update, dict) and isinstance(update.get("messages"), list):
        return [one for one in update["messages"] if isinstance(one, BaseMessage)]
    return None


def _message(tool: Any, call_id: str, ran: Ran) -> Any:
    """The message that stands in place of what the model may not see."""
    from langchain_core.messages import ToolMessage

    content = ran.seen if isinstance(ran.seen, (str, list)) else json.dumps(ran.seen)
    if isinstance(ran.result, ToolMessage) and not ran.withheld:
        return ran.result.model_copy(update={"content": content})
    return ToolMessage(content, tool_call_id=call_id, name=tool.name, status="error" if ran.failed else "success")
