"""LlamaIndex: every tool class, in agent workflows, function-calling models, query engines, or called directly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from aegis.enforce.arguments import bound_arguments, check_types, fitted, shown
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution, comes_from
from aegis.enforce.scope import (
    EnforcedScope,
    begun,
    call_id_of,
    calling,
    current_scope,
    deferring,
    executing,
    running,
    scoped,
    streaming,
)
from aegis.enforce.tools import Ran, ToolGate
from aegis.enforce.witness import watch

DISTRIBUTION: Final = "llama-index-core"
SUPPORTED: Final = ((0, 14, 25), (0, 15))


def hook(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the installed package; there is nothing to `bar`. Raises `UnhookedFramework`."""
    hooks = _Hooks(ToolGate(enforcer, memory, pauses=("workflows.runtime.types.results.WaitingForEvent",)))

    patches.families(
        "llama_index.core.tools.types", "BaseTool", __call__=hooks.call, call=hooks.call, acall=hooks.acall
    )
    patches.when(
        "llama_index.core.tools.function_tool",
        lambda module: watch(
            enforcer,
            patches,
            module.FunctionTool,
            "_fn",
            "_async_fn",
            "_real_fn",
            name_of=lambda tool: str(tool.metadata.get_name()),
            given_of=lambda tool, args, kwargs: bound_arguments(vars(tool)["_real_fn"], args, kwargs),
        ),
    )
    patches.methods(
        "llama_index.core.llms.function_calling",
        "FunctionCallingLLM",
        achat_with_tools=calling(_deferred),
        astream_chat_with_tools=streaming(_deferred),
        # A model is asked by itself, and runs the tools.
        predict_and_call=calling(_own),
        apredict_and_call=calling(_own),
    )
    workflow = "llama_index.core.agent.workflow"
    for module, agent in (("base_agent", "BaseWorkflowAgent"), ("multi_agent_workflow", "AgentWorkflow")):
        patches.methods(
            f"{workflow}.{module}", agent, call_tool=calling(lambda _, ctx, ev: executing(ev.tool_name, ev.tool_id))
        )
    heard = enforcer.hearer.entry(_said)
    patches.methods(f"{workflow}.base_agent", "BaseWorkflowAgent", run=heard)
    patches.methods(f"{workflow}.multi_agent_workflow", "AgentWorkflow", run=heard)
    asked = calling(_of_agent)
    patches.methods(f"{workflow}.function_agent", "FunctionAgent", _get_response=asked, _get_streaming_response=asked)
    return Seams(
        seams=("BaseTool.__call__", "BaseTool.call", "BaseTool.acall", "FunctionAgent"),
        uncovered=("a function that the host calls by its own name",),
    )


def _said(_agent: Any, *args: Any, **options: Any) -> Iterator[str]:
    """What the user says to an agent or a workflow of agents."""
    said = options.get("user_msg") or (args[0] if args else None)
    if said is not None and not isinstance(said, str):
        said = said.content if getattr(said, "content", None) and said.role.value == "user" else None
    return iter([] if said is None else [said])


def _of_agent(_: Any, *args: Any, **kwargs: Any) -> EnforcedScope:
    """A model is asked by an agent whose workflow runs the tools."""
    return running(tool.metadata.get_name() for tool in kwargs.get("tools") or args[-1])


def _own(_: Any, tools: Any, *args: Any, **kwargs: Any) -> EnforcedScope:
    names = frozenset(tool.metadata.get_name() for tool in tools)
    return running(names)._replace(deferred=names)


def _deferred(*_: Any, **__: Any) -> EnforcedScope:
    return deferring(current_scope().runs)


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def call(self, original: Method) -> Method:
        def call(tool: Any, *args: Any, **kwargs: Any) -> Any:
            one = _Call(tool, args, kwargs)
            ran = self._gate.call(one.execution, lambda given: one.run(original, given), _view)
            return one.output(ran)

        return call

    def acall(self, original: Method) -> Method:
        async def acall(tool: Any, *args: Any, **kwargs: Any) -> Any:
            one = _Call(tool, args, kwargs)
            ran = await self._gate.acall(one.execution, lambda given: one.arun(original, given), _view)
            return one.output(ran)

        return acall


class _Call:
    """One call of a tool with its final arguments."""

    def __init__(self, tool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._tool = tool
        self._given = kwargs
        self._context = {getattr(tool, "ctx_param_name", None)} - {None}
        self._named: dict[str, Any] = {}
        self._unnamed: list[str] = []
        name = tool.metadata.get_name()
        self.execution = Execution(
            tool=name,
            call_id=call_id_of(name),
            answer_id=None,
            arguments=lambda: self._final(args, kwargs),
            handoff=comes_from(tool, "llama_index.core.agent.workflow.multi_agent_workflow"),
        )

    def run(self, original: Method, given: dict[str, Any]) -> Any:
        """The output of the body with what may run."""
        args, kwargs = self._values(given)
        with scoped(self._scope()):
            return original(self._tool, *args, **kwargs)

    async def arun(self, original: Method, given: dict[str, Any]) -> Any:
        """The async twin of `run`."""
        args, kwargs = self._values(given)
        with scoped(self._scope()):
            return await original(self._tool, *args, **kwargs)

    def _values(self, given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """What the body gets of the arguments that may run; the workflow's context is none of the model's."""
        context = {name: value for name, value in self._given.items() if name in self._context}
        values = {**context, **fitted(self._named, given, lambda changed: changed)}
        # Some tools make another query of a named value than of the same one by position.
        return [values.pop(name) for name in self._unnamed], values

    def _scope(self) -> EnforcedScope:
        """A tool that is no function is its own body."""
        return current_scope() if getattr(self._tool, "real_fn", None) is not None else begun()

    def output(self, ran: Ran) -> Any:
        """The tool's output, which an agent tells its model."""
        if not ran.replaced:
            return ran.result
        from llama_index.core.tools import ToolOutput

        text = ran.seen if isinstance(ran.seen, str) else str(ran.seen)
        name = self._tool.metadata.get_name()
        return ToolOutput(content=text, tool_name=name, raw_input=self._named, raw_output=text, is_error=ran.failed)

    def _final(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name: defaulted where the tool is a function, by the schema's first name where it is not."""
        function = getattr(self._tool, "real_fn", None)
        if function is None:
            names = list(self._tool.metadata.get_parameters_dict().get("properties", ()))
            named = {**dict(zip(names, args, strict=False)), **kwargs}
            if len(args) > len(names):
                raise TypeError("more arguments than the tool has")
            self._unnamed = names[: len(args)]
        else:
            fixed = {**getattr(self._tool, "_field_defaults", {}), **self._tool.partial_params, **kwargs}
            named = bound_arguments(function, args, fixed)
            check_types(function, {name: value for name, value in named.items() if name not in self._context})
        self._named = {name: value for name, value in named.items() if name not in self._context}
        return self._named


def _view(output: Any) -> Any:
    """What a model is told of an output."""
    content = getattr(output, "content", None)
    return shown(output) if content is None else str(content)
