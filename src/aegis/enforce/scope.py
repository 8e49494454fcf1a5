"""What holds around a piece of a framework's code: the calls that the framework enforces itself, and the decision.

A framework that runs tools itself enforces each call where its body runs, with its final arguments. The model call
before it is marked, so that a hooked SDK underneath lets those calls pass. The mark ends inside every body: what a
tool's own code asks of a model is its own affair and is decided as ever.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from aegis.enforce.context import Holding

T = TypeVar("T")

# The loop of a host that decides the calls of the MCP servers in it itself.
DECIDED: Final = "decided before the server"


class ScopePassage:
    """A model's call on its way to its body: whether it was `reached` by the gate, and whether a body ran `beside` it.

    A body runs beside the gate where nothing was decided, or something else than what the body is given.
    """

    __slots__ = ("beside", "call_id", "reached")

    def __init__(self, call_id: str = "") -> None:
        self.call_id = call_id
        self.reached = False
        self.beside = False


class EnforcedScope(NamedTuple):
    """What holds for a piece of code.

    `runs` names the tools that the agent around it executes; `deferred` those of them whose calls a model
    is just asked for, and `handoffs` those that only let another agent go on; `decided` is the call in whose body it
    runs: its tool and its arguments, and `key` what that execution is known by, if the framework gives the call an id.
    `call` is the model's call that is being executed, its tool and its id, for a seam underneath that is not told.
    `loop` is what an adapter keeps of an agent's loop.
    `final` knows the arguments with which tools of the host run what a model asks for, validated and defaulted.
    `passage` is the way of the call that is executed, and `begun` says that its body has begun.
    """

    runs: frozenset[str] = frozenset()
    deferred: frozenset[str] = frozenset()
    handoffs: frozenset[str] = frozenset()
    decided: tuple[str, bytes] | None = None
    key: str = ""
    call: tuple[str, str] | None = None
    loop: Any = None
    final: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] | None = None
    passage: ScopePassage | None = None
    begun: bool = False


_scope: ContextVar[EnforcedScope | None] = ContextVar("aegis_scope", default=None)
_NOWHERE = EnforcedScope()


def current_scope() -> EnforcedScope:
    """The scope of this thread or task."""
    return _scope.get() or _NOWHERE


def is_outermost() -> bool:
    """Whether no agent's run, no model's call of a framework and no tool's body is around this code."""
    return _scope.get() is None


def scoped(scope: EnforcedScope) -> Holding[EnforcedScope | None]:
    """Make a scope hold for the block."""
    return Holding(_scope, scope)


def enter(scope: EnforcedScope) -> EnforcedScope:
    """Make a scope hold from here on; gives the one before, to be entered again at the end."""
    before = current_scope()
    _scope.set(scope)
    return before


def running(names: Iterable[str]) -> EnforcedScope:
    """The scope of an agent that executes these tools."""
    return current_scope()._replace(runs=frozenset(names))


def deferring(names: Iterable[str], handoffs: Iterable[str] = ()) -> EnforcedScope:
    """The scope of a model call whose answer goes to an agent that enforces the calls of these tools.

    Calls of `handoffs` are decided in the answer, and let another agent go on.
    """
    return current_scope()._replace(deferred=frozenset(names), handoffs=frozenset(handoffs))


def within() -> Holding[EnforcedScope | None]:
    """Make the block part of what is around it: what users say is not heard in there."""
    return scoped(current_scope())


def enter_again() -> Callable[[], None]:
    """`within` from here on, for code whose end may lie in another task; gives what ends it."""
    before = _scope.get()
    _scope.set(current_scope())

    def leave() -> None:
        _scope.set(before)

    return leave


def looping(loop: Any) -> EnforcedScope:
    """The scope of an agent's loop."""
    return current_scope()._replace(loop=loop)


def executing(tool: str, call_id: Any) -> EnforcedScope:
    """The scope of code that executes a call of a model, once or more often; it ends where the body begins."""
    return current_scope()._replace(call=(tool, call_id if isinstance(call_id, str) else ""))


def call_id_of(tool: str) -> str:
    """The id of the call that is executed, if it is one of this tool."""
    call = current_scope().call
    return call[1] if call is not None and call[0] == tool else ""


def passing(passage: ScopePassage) -> EnforcedScope:
    """The scope of code of the host that stands between a model's call and its decision."""
    return current_scope()._replace(decided=None, key="", passage=passage, begun=False)


def reached(call_id: Any) -> None:
    """Say that a call was brought before the gate; it is the one that is on its way if it has the same id."""
    passage = current_scope().passage
    if passage is not None and call_id == passage.call_id:
        passage.reached = True


def body_of(tool: str, arguments: bytes, key: str, passage: ScopePassage) -> EnforcedScope:
    """The scope that leads from a decided call to its body; nothing of the scopes around it holds in there."""
    return EnforcedScope(decided=(tool, arguments), key=key, passage=passage)


def begun() -> EnforcedScope:
    """The scope of a body that runs with what was decided: what it does inside is its own affair."""
    return current_scope()._replace(begun=True)


def inside(key: str) -> EnforcedScope:
    """The scope of a body within the body of the same call."""
    return current_scope()._replace(key=key)


def items_in(scope: EnforcedScope, source: Iterable[T]) -> Generator[T, None, None]:
    """The items of an iterable, each made in the scope; the consumer's code is not in it."""
    iterator = iter(source)
    try:
        while True:
            with scoped(scope):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item
    finally:
        close: Any = getattr(iterator, "close", None)
        if close is not None:
            close()


async def aitems_in(scope: EnforcedScope, source: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """The async twin of `items_in`."""
    try:
        while True:
            with scoped(scope):
                try:
                    item = await anext(source)
                except StopAsyncIteration:
                    return
            yield item
    finally:
        close: Any = getattr(source, "aclose", None)
        if close is not None:
            await close()


# What a framework's method is called with, and the scope that holds while it runs.
ScopeOf = Callable[..., EnforcedScope]


def calling(scope_of: ScopeOf) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a replacement that calls the original, sync or async, in the scope that its own arguments make."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            scope = scope_of(*args, **kwargs)
            with scoped(scope):
                result = original(*args, **kwargs)
            # Of a coroutine nothing has run yet; a decorated method is not known for one before.
            return _awaited(scope, result) if inspect.iscoroutine(result) else result

        return call

    return wrap


def streaming(scope_of: ScopeOf) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a replacement that gives the original's items, sync or async, each made in the scope of its arguments."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def stream(*args: Any, **kwargs: Any) -> Any:
            scope = scope_of(*args, **kwargs)
            with scoped(scope):
                items = original(*args, **kwargs)
            if inspect.isawaitable(items):
                return _awaited_items(scope, items)
            return aitems_in(scope, aiter(items)) if hasattr(items, "__aiter__") else items_in(scope, items)

        return stream

    return wrap


async def _awaited(scope: EnforcedScope, result: Awaitable[Any]) -> Any:
    with scoped(scope):
        return await result


async def _awaited_items(scope: EnforcedScope, source: Awaitable[Any]) -> AsyncGenerator[Any, None]:
    """The items of a stream that is given once it is awaited."""
    return aitems_in(scope, aiter(await _awaited(scope, source)))
