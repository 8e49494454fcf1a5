"""What models of the OpenAI Agents SDK answer over ways that nothing else hooks: WebSockets, and models of a host.

An SDK that is hooked underneath decides the calls of its answers. Those that nobody decided, and that no function tool
of the run is going to execute, are decided here, before the run sees the answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from aegis.adapters._enforce import Enforcer, Steps
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method
from aegis.adapters._scope import Scope, aitems_in, deferring, scoped
from aegis.adapters._turn import Turn
from aegis.dialects.model import Proposed, Wire
from aegis.dialects.openai_responses import OpenAIResponses

_RESPONSES: Final = OpenAIResponses()
_INPUT: Final = 1  # the place of the input among the arguments of a model
_TOOLS: Final = 3


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

    def _turn(self, scope: Scope) -> _Undecided:
        return _Undecided(self._enforcer, self._own, self._memory, scope.deferred)

    async def _amended(
        self, turn: Turn, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = kwargs["input"] if "input" in kwargs else args[_INPUT]
        amended = (await self._enforcer.arun(turn.amended({"input": given})))["input"]
        if amended is given:
            return args, kwargs
        if "input" in kwargs:
            return args, {**kwargs, "input": amended}
        return (*args[:_INPUT], amended, *args[_INPUT + 1 :]), kwargs


class _Undecided(Turn):
    """A turn in which the calls that an SDK underneath has decided pass."""

    def __init__(self, enforcer: Enforcer, memory: Memory, below: Memory, deferred: frozenset[str]) -> None:
        super().__init__(enforcer, memory, _RESPONSES, deferred=deferred)
        self._below = below

    def _is_deferred(self, call: Proposed) -> bool:
        return super()._is_deferred(call) or self._below.decision(self._name, call.call_id) is not None


def _settled(turn: Turn, response_id: str | None, output: list[Any]) -> Steps[list[Any]]:
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


def _deferred(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Scope:
    """The function tools that a run gave to the model, which it decides where it executes them."""
    from agents.tool import FunctionTool

    given = kwargs["tools"] if "tools" in kwargs else args[_TOOLS]
    return deferring(tool.name for tool in given if isinstance(tool, FunctionTool))
