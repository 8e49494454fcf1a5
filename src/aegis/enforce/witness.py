"""Who sees a body begin: one that runs under no decision, or with something else than was decided, went round a seam.

The witness stands at the body, underneath the seam that decides: at the method that runs it, or at the function that a
tool holds, whoever takes it from there. While canaries are fired it stands in for the body, and no real tool runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from aegis.core.canonical import canonical
from aegis.core.json import parse
from aegis.enforce.arguments import bound_arguments, jsonable
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.patching import Method, Patches
from aegis.enforce.scope import DECIDED, aitems_in, begun, current_scope, scoped
from aegis.errors import AegisError, CallRefused

# The arguments, by name, that a body is about to get: from the body itself, and what it is called with.
Given = Callable[[Method, tuple[Any, ...], dict[str, Any]], Mapping[str, Any]]

# Of the whole process: frameworks run bodies in threads that know nothing of the context they were called in.
_traps: Final[list[list[str]]] = []


@contextmanager
def trapping() -> Iterator[list[str]]:
    """Let no body run for the block, in any thread; gives the names of the tools whose bodies would have."""
    caught: list[str] = []
    _traps.append(caught)
    try:
        yield caught
    finally:
        _traps.remove(caught)


@contextmanager
def standing_in(tool: str, owner: Any, *names: str) -> Iterator[None]:
    """Put a trap in place of functions that an object holds as its tool's body, for the block."""
    with ExitStack() as restoring:
        for name in names:
            own = vars(owner)
            if name in own:
                restoring.callback(object.__setattr__, owner, name, own[name])
            else:
                restoring.callback(object.__delattr__, owner, name)
            object.__setattr__(owner, name, _trap(tool, getattr(owner, name)))
        yield


def _trap(tool: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """What looks like the original and only says that it would have run."""
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def atrap(*args: Any, **kwargs: Any) -> None:
            _traps[-1].append(tool)

        return atrap

    @functools.wraps(original)
    def trap(*args: Any, **kwargs: Any) -> None:
        _traps[-1].append(tool)

    return trap


def witnessed(
    enforcer: Enforcer, name_of: Callable[..., str], given_of: Given | None = None, *, renamed: bool = False
) -> Callable[[Method], Method]:
    """Stand at the body of a tool, whose name `name_of` takes from what the body is called with.

    `given_of` says with which of the model's arguments it is called; without it they are not compared, nor are those of
    another tool than the one that was decided, unless `renamed` says that it may have another name than its call.
    """

    def wrap(original: Method) -> Method:
        return _guarded(_Witness(enforcer, name_of, given_of, renamed=renamed), original, lambda: True)

    return wrap


def watch(
    enforcer: Enforcer,
    patches: Patches,
    owner: Any,
    *attributes: str,
    name_of: Callable[[Any], str],
    given_of: Callable[[Any, tuple[Any, ...], dict[str, Any]], Mapping[str, Any]] | None = None,
) -> None:
    """Stand at the functions that tools of a class hold as their bodies, whoever takes one from its tool.

    What is no plain function stays as it is. A body that has begun takes its own functions as they are: it may run
    them in a thread that knows nothing of the decision.
    """

    def make(tool: Any, function: Any) -> Any:
        if not inspect.isroutine(function):
            return function
        given = None if given_of is None else lambda _, args, kwargs: given_of(tool, args, kwargs)
        return watched(enforcer, patches, function, name_of(tool), given)

    for attribute in attributes:
        patches.held(owner, attribute, make, unless=lambda: current_scope().begun)


def watched(enforcer: Enforcer, patches: Patches, function: Method, tool: str, given_of: Given | None = None) -> Method:
    """What stands in place of the function that a tool is made of, and is called as that is."""
    witness = _Witness(enforcer, lambda *_: tool, given_of or by_name)
    return functools.wraps(function)(_guarded(witness, function, lambda: patches.active))


def by_name(original: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
    """The arguments of a body by the names of its parameters; raises `TypeError` where it would not run."""
    return bound_arguments(original, args, kwargs)


class _Witness:
    """Sees one body begin, and says whether it may."""

    def __init__(
        self, enforcer: Enforcer, name_of: Callable[..., str], given_of: Given | None, *, renamed: bool = False
    ) -> None:
        self._enforcer = enforcer
        self._name_of = name_of
        self._given_of = given_of
        self._renamed = renamed

    def stands_in(self, args: tuple[Any, ...]) -> bool:
        """Whether a canary was fired, for which nothing of the body runs."""
        if _traps:
            _traps[-1].append(self._name_of(*args))
            return True
        return False

    def begins(self, original: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise the alarm for a body that begins beside the decision; `CallRefused` where that is a model's call."""
        scope = current_scope()
        if scope.begun or scope.loop == DECIDED:
            return
        tool = self._name_of(*args)
        if scope.decided is not None and self._is_decided(scope.decided, tool, original, args, kwargs):
            return
        if scope.passage is not None:
            scope.passage.beside = True
        self._enforcer.uncovered(tool)
        if scope.passage is not None:
            raise CallRefused(f"`{tool}` was not run: this is not what was decided")

    def _is_decided(
        self,
        decided: tuple[str, bytes],
        tool: str,
        original: Method,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> bool:
        """Whether this body, with the model's arguments that it gets, is the one that was decided."""
        # A tool that is made of others runs them: its own affair.
        if self._given_of is None or (tool != decided[0] and not self._renamed):
            return True
        try:
            given = self._given_of(original, args, kwargs)
            named = {name: given[name] for name in parse(decided[1])}  # others are the framework's own
            return canonical(jsonable(named)) == decided[1]
        except (AegisError, LookupError, TypeError, ValueError):
            return False


def _guarded(witness: _Witness, original: Method, active: Callable[[], bool]) -> Method:
    """What is called in place of a body, of the same kind."""
    if inspect.isasyncgenfunction(original):

        async def agenerator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            if active():
                if witness.stands_in(args):
                    return
                witness.begins(original, args, kwargs)
            async for item in aitems_in(begun() if active() else current_scope(), original(*args, **kwargs)):
                yield item

        return agenerator
    if inspect.iscoroutinefunction(original):

        async def abody(*args: Any, **kwargs: Any) -> Any:
            if not active():
                return await original(*args, **kwargs)
            if witness.stands_in(args):
                return None
            witness.begins(original, args, kwargs)
            with scoped(begun()):
                return await original(*args, **kwargs)

        return abody

    def body(*args: Any, **kwargs: Any) -> Any:
        if not active():
            return original(*args, **kwargs)
        if witness.stands_in(args):
            return None
        witness.begins(original, args, kwargs)
        with scoped(begun()):
            return original(*args, **kwargs)

    return body
