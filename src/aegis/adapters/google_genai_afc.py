"""Automatic function calling of `google-genai`: the package's own loop over a model and Python functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Final

from aegis.adapters._arguments import fitted, named_arguments
from aegis.adapters._enforce import Enforcer
from aegis.adapters._memory import Memory
from aegis.adapters._patch import Method, Patches
from aegis.adapters._runner import Execution
from aegis.adapters._scope import Scope, aitems_in, current_scope, items_in, looping, scoped
from aegis.adapters._tools import ToolGate
from aegis.adapters.seams import Seams
from aegis.errors import UnhookedFramework

_LIVE: Final = "live.connect"

# The calls of the answer whose functions are being run, in order: tool and id.
_answered: ContextVar[list[tuple[str, str]] | None] = ContextVar("aegis_genai_answered", default=None)


class Loop:
    """What is known of one loop: the functions that it runs, and how many requests it still makes."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self.remaining = 0

    def request(self) -> frozenset[str]:
        """The functions whose calls in the next answer the loop runs; it hands those of its last one out."""
        if not self.names:
            return frozenset()
        self.remaining -= 1
        return self.names if self.remaining > 0 else frozenset()


def hook_loops(enforcer: Enforcer, memory: Memory, patches: Patches, *, bar: bool) -> Seams:
    """Hook the places where the package runs a function; `bar` refuses live sessions, which are not covered."""
    hooks = _Hooks(ToolGate(enforcer, memory))

    def utilities(module: Any) -> None:
        patches.replace(module, "get_max_remote_calls_afc", _counted)
        patches.replace(module, "get_function_map", hooks.functions)
        patches.replace(module, "get_function_response_parts", _identified)
        patches.replace(module, "get_function_response_parts_async", _aidentified)

    def models(module: Any) -> None:
        patches.replace(module.Models, "generate_content", _loop)
        patches.replace(module.Models, "generate_content_stream", _loop_stream)
        patches.replace(module.AsyncModels, "generate_content", _aloop)
        patches.replace(module.AsyncModels, "generate_content_stream", _aloop_stream)

    def chats(module: Any) -> None:
        patches.replace(module.Chat, "send_message", _loop)
        patches.replace(module.Chat, "send_message_stream", _loop_stream)
        patches.replace(module.AsyncChat, "send_message", _aloop)
        patches.replace(module.AsyncChat, "send_message_stream", _aloop_stream)

    patches.when("google.genai._extra_utils", utilities)
    patches.when("google.genai.models", models)
    patches.when("google.genai.chats", chats)
    patches.when(
        "google.genai._mcp_to_genai_tool_adapter",
        lambda module: patches.replace(module.McpToGenAiToolAdapter, "call_tool", hooks.remote),
    )
    if bar:
        patches.when("google.genai.live", lambda module: patches.replace(module.AsyncLive, "connect", _refuse))
    return Seams(
        seams=("automatic function calling", "McpToGenAiToolAdapter.call_tool"),
        barred=(_LIVE,) if bar else (),
        uncovered=() if bar else (_LIVE,),
    )


def _refuse(original: Method) -> Method:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise UnhookedFramework(f"`{original.__qualname__}` is not covered, so it is refused while the hooks are on")

    return refuse


def _fresh() -> Scope:
    """The scope of a loop; a chat's loop goes on in the requests that it makes."""
    scope = current_scope()
    return scope if isinstance(scope.loop, Loop) else looping(Loop())


def _loop(original: Method) -> Method:
    def loop(*args: Any, **kwargs: Any) -> Any:
        with scoped(_fresh()):
            return original(*args, **kwargs)

    return loop


def _loop_stream(original: Method) -> Method:
    def loop(*args: Any, **kwargs: Any) -> Iterator[Any]:
        return items_in(_fresh(), original(*args, **kwargs))

    return loop


def _aloop(original: Method) -> Method:
    async def loop(*args: Any, **kwargs: Any) -> Any:
        with scoped(_fresh()):
            return await original(*args, **kwargs)

    return loop


def _aloop_stream(original: Method) -> Method:
    async def loop(*args: Any, **kwargs: Any) -> Any:
        scope = _fresh()
        with scoped(scope):
            chunks = await original(*args, **kwargs)
        return aitems_in(scope, chunks)

    return loop


def _counted(original: Method) -> Method:
    def count(*args: Any, **kwargs: Any) -> Any:
        allowed = original(*args, **kwargs)
        loop = current_scope().loop
        if isinstance(loop, Loop):
            loop.remaining = allowed or 0
        return allowed

    return count


def _identified(original: Method) -> Method:
    def respond(response: Any, functions: Any) -> Any:
        token = _answered.set(_calls_of(response))
        try:
            return original(response, functions)
        finally:
            _answered.reset(token)

    return respond


def _aidentified(original: Method) -> Method:
    async def respond(response: Any, functions: Any) -> Any:
        token = _answered.set(_calls_of(response))
        try:
            return await original(response, functions)
        finally:
            _answered.reset(token)

    return respond


def _calls_of(response: Any) -> list[tuple[str, str]]:
    return [(call.name or "", call.id or "") for call in response.function_calls or ()]


def _next_id(tool: str) -> str:
    """The id of the first call of a tool that has not been run yet."""
    waiting = _answered.get() or []
    for one in waiting:
        if one[0] == tool:
            waiting.remove(one)
            return one[1]
    return ""


class _Hooks:
    """The replacements, around one gate."""

    def __init__(self, gate: ToolGate) -> None:
        self._gate = gate

    def functions(self, original: Method) -> Method:
        def functions(*args: Any, **kwargs: Any) -> Any:
            found = original(*args, **kwargs)
            loop = current_scope().loop
            if isinstance(loop, Loop):
                loop.names = frozenset(found)
            return {name: self._gated(name, one) for name, one in found.items()}

        return functions

    def remote(self, original: Method) -> Method:
        async def call_tool(adapter: Any, call: Any) -> Any:
            execution = Execution(
                tool=call.name, call_id=_next_id(call.name), answer_id=None, arguments=lambda: dict(call.args or {})
            )

            async def body(given: dict[str, Any]) -> Any:
                return await original(adapter, call.model_copy(update={"args": given}))

            return (await self._gate.acall(execution, body)).output()

        return call_tool

    def _gated(self, name: str, function: Any) -> Any:
        if not callable(function):
            return function  # an adapter of a remote tool, which is hooked itself
        signature = inspect.signature(function)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                values = named_arguments(signature.bind(*args, **kwargs))
                ran = await self._gate.acall(_execution(name, values), lambda given: function(**_typed(values, given)))
                return ran.seen if ran.replaced else ran.result

            return arun

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            values = named_arguments(signature.bind(*args, **kwargs))
            ran = self._gate.call(_execution(name, values), lambda given: function(**_typed(values, given)))
            return ran.seen if ran.replaced else ran.result

        return run


def _execution(name: str, values: dict[str, Any]) -> Execution:
    return Execution(tool=name, call_id=_next_id(name), answer_id=None, arguments=lambda: values)


def _typed(values: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What a function gets: what was decided, in the types that the package had made of it."""
    return fitted(values, given, lambda changed: {name: _like(values.get(name), one) for name, one in changed.items()})


def _like(before: Any, value: Any) -> Any:
    """A changed value as a model of the class that the one before was of."""
    validate = getattr(type(before), "model_validate", None)
    return value if validate is None else validate(value)
