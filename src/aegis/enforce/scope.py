"""On whose behalf calls are made, and what holds around a piece of a framework's code while it runs."""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

# On whose behalf calls are made: the session and the task that the host has opened, per thread and task; and the
# permit of the call whose body runs.


class Holding(Generic[T]):
    """A context manager in whose block a variable has a value."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token: Token[T] = self._variable.set(self._value)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self._variable.reset(self._token)


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session as the host named it, and what the user asked for."""

    name: str
    task: str | None = None


_current: ContextVar[Session | None] = ContextVar("aegis_session", default=None)


def current_session() -> Session | None:
    """The session of this thread or task, if the host has opened one."""
    return _current.get()


_permit: ContextVar[str | None] = ContextVar("aegis_permit", default=None)


def current_permit() -> str | None:
    """The permit of the call in whose body this code runs, if it was given one."""
    return _permit.get()


def permit_context(permit: str | None) -> Holding[str | None]:
    """Carry a call's permit to what its body calls, past everything that a model sees."""
    return Holding(_permit, permit)


def enter_session(session: Session) -> None:
    """Make every call from here on part of `session`, until the thread or task ends."""
    _current.set(session)


@contextmanager
def session_context(session: Session) -> Iterator[Session]:
    """Make every call of the block part of `session`; sessions nest, the inner one counts."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)


# What holds around a piece of a framework's code: the calls that the framework enforces itself, and the decision.
#
# A framework that runs tools itself enforces each call where its body runs, with its final arguments. The model call
# before it is marked, so that a hooked SDK underneath lets those calls pass. The mark ends inside every body: what a
# tool's own code asks of a model is its own affair and is decided as ever.

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


# Calls of models that a framework is going to decide where it runs them, until their results go back to the model.
#
# A body that runs beside every decision is an alarm at once, but which call it ran for is not known there. So every
# open call of that tool is marked: what comes back for it, and was not judged under a decision, does not reach the
# model.

MAX_CALLS: Final = 10_000  # models can ask for calls without end; the oldest is forgotten, and known by its decision


class OpenCalls:
    """The open calls of a process, by session and id; safe for threads and forks."""

    def __init__(self, max_calls: int = MAX_CALLS) -> None:
        self._lock = threading.Lock()
        self._tools: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._marked: set[tuple[str, str]] = set()
        self._max_calls = max_calls
        renew = weakref.WeakMethod(self._renew)
        os.register_at_fork(after_in_child=lambda: (method := renew()) and method())

    def opened(self, session: str, call_id: str, tool: str) -> None:
        """A model asked for a call that is going to be decided where it runs; one without an id cannot be known."""
        if not call_id:
            return
        with self._lock:
            self._marked.discard((session, call_id))
            self._tools[session, call_id] = tool
            self._tools.move_to_end((session, call_id))
            if len(self._tools) > self._max_calls:
                oldest, _ = self._tools.popitem(last=False)
                self._marked.discard(oldest)

    def ran_beside(self, session: str, tool: str) -> None:
        """A body of this tool ran, or would have, beside every decision."""
        with self._lock:
            self._marked.update(key for key, name in self._tools.items() if key[0] == session and name == tool)

    def closed(self, session: str, call_id: str) -> bool:
        """A result of the call is about to reach the model; whether a body of its tool ran beside the decisions."""
        with self._lock:
            self._tools.pop((session, call_id), None)
            marked = (session, call_id) in self._marked
            self._marked.discard((session, call_id))
            return marked

    def _renew(self) -> None:
        # The thread that held the lock does not exist in the child.
        self._lock = threading.Lock()
