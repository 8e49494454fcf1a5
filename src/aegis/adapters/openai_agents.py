"""OpenAI Agents SDK: every function tool, those of MCP servers and of agents as tools included, right before it runs.

Guardrails of tools see arguments before they are validated and are given tool by tool; every invocation goes through
one function below them. Who calls a tool past it (`on_invoke_tool`, `__wrapped__`) is an alarm. Other calls of the
model (handoffs, shells, patches, custom tools) are decided in its answer.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from aegis.enforce.arguments import jsonable, named_arguments, shown
from aegis.enforce.enforcement import Enforcer, Steps
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Method, Patches, Seams
from aegis.enforce.runner import Execution
from aegis.enforce.scope import EnforcedScope, aitems_in, deferring, scoped
from aegis.enforce.tools import ToolGate
from aegis.enforce.turn import ProviderTurn
from aegis.enforce.witness import watch, watched, witnessed
from aegis.enforce.words import user_texts
from aegis.wire.model import Proposed, Wire
from aegis.wire.openai_responses import OpenAIResponses

# What models of the OpenAI Agents SDK answer over ways that nothing else hooks: WebSockets, and models of a host.
#
# An SDK that is hooked underneath decides the calls of its answers. Those that nobody decided, and that no function
# tool of the run is going to execute, are decided here, before the run sees the answer.

_RESPONSES: Final = OpenAIResponses()
_INPUT: Final = 1  # the place of the input among the arguments of a model
_TOOLS: Final = 3
_HANDOFFS: Final = 5


class Asking:
    """Asks models; `memory` is that of the SDKs underneath."""

    def __init__(self, enforcer: Enforcer, memory: Memory) -> None:
        self._enforcer = enforcer
        self._memory = memory
        self._own = Memory()

    def whole(self, original: Method) -> Method:
        async def ask(model: Any, *args: Any, **kwargs: Any) -> Any:
            scope = _deferred(args, kwargs)
            turn = self._turn(scope)
            args, kwargs = await self._amended(turn, args, kwargs)
            with scoped(scope):
                response = await original(model, *args, **kwargs)
            output = await self._enforcer.arun(_settled(turn, response.response_id, response.output))
            if output is not response.output:
                response.output = output
            return response

        return ask

    def streamed(self, original: Method) -> Method:
        async def ask(model: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            scope = _deferred(args, kwargs)
            turn = self._turn(scope)
            args, kwargs = await self._amended(turn, args, kwargs)
            async for event in aitems_in(scope, original(model, *args, **kwargs)):
                if event.type != "response.completed":
                    yield event
                    continue
                response = event.response
                output = await self._enforcer.arun(_settled(turn, response.id, response.output))
                if output is response.output:
                    yield event
                else:
                    yield event.model_copy(update={"response": response.model_copy(update={"output": output})})

        return ask

    def _turn(self, scope: EnforcedScope) -> _Undecided:
        with scoped(scope):
            return _Undecided(self._enforcer, self._own, self._memory, scope.deferred)

    async def _amended(
        self, turn: ProviderTurn, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = kwargs["input"] if "input" in kwargs else args[_INPUT]
        amended = (await self._enforcer.arun(turn.amended({"input": given})))["input"]
        if amended is given:
            return args, kwargs
        if "input" in kwargs:
            return args, {**kwargs, "input": amended}
        return (*args[:_INPUT], amended, *args[_INPUT + 1 :]), kwargs


class _Undecided(ProviderTurn):
    """A turn in which the calls that an SDK underneath has decided pass."""

    def __init__(self, enforcer: Enforcer, memory: Memory, below: Memory, deferred: frozenset[str]) -> None:
        super().__init__(enforcer, memory, _RESPONSES, deferred=deferred)
        self._below = below

    def _is_deferred(self, call: Proposed) -> bool:
        return super()._is_deferred(call) or self._below.decision(self._name, call.call_id) is not None


def _settled(turn: ProviderTurn, response_id: str | None, output: list[Any]) -> Steps[list[Any]]:
    """The items of an answer as the run may see them; the same list where nothing changes."""
    answer: Wire = {"id": response_id or "", "output": [_wire(item) for item in output]}
    settled = yield from turn.settled(answer)
    if settled["output"] == answer["output"]:
        return output
    from openai._models import construct_type_unchecked
    from openai.types.responses import ResponseOutputItem

    made: Any = ResponseOutputItem
    return [construct_type_unchecked(value=item, type_=made) for item in settled["output"]]


def _wire(item: Any) -> Any:
    return item if isinstance(item, dict) else item.model_dump(exclude_unset=True)


def _deferred(args: tuple[Any, ...], kwargs: dict[str, Any]) -> EnforcedScope:
    """The function tools that a run gave to the model, which it decides where it executes them; and its handoffs."""
    from agents.tool import FunctionTool

    given = kwargs["tools"] if "tools" in kwargs else args[_TOOLS]
    others = kwargs["handoffs"] if "handoffs" in kwargs else args[_HANDOFFS] if len(args) > _HANDOFFS else ()
    handoffs = (one.tool_name for one in others or ())
    return deferring((tool.name for tool in given if isinstance(tool, FunctionTool)), handoffs)


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
    heard = enforcer.hearer.entry(_said)
    patches.methods("agents.run", "AgentRunner", run=heard, run_sync=heard, run_streamed=heard)
    asking = Asking(enforcer, memory)
    patches.families("agents.models.interface", "Model", get_response=asking.whole, stream_response=asking.streamed)
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


def _said(_runner: Any, _agent: Any, given: Any = None, **options: Any) -> Iterator[str]:
    """What the user says in the input of a run; the state of an interrupted one says nothing new."""
    said = options.get("input", given)
    return user_texts(said) if isinstance(said, (str, list)) else iter(())


def _invoking(gate: ToolGate, original: Method) -> Method:
    async def invoke(*, function_tool: Any, context: Any, arguments: str) -> Any:
        execution = Execution(
            tool=function_tool.name,
            call_id=context.tool_call_id,
            answer_id=None,
            arguments=lambda: _final(function_tool, arguments),
            handoff=getattr(function_tool, "_is_agent_tool", False) is True,
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
