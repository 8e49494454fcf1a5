"""Who sees a body begin: one that runs under no decision went round every seam, and is told of.

The witness stands at the body, underneath the seam that decides. While canaries are fired it stands in for the body:
nothing of a real tool runs.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from aegis.adapters._enforce import Enforcer
from aegis.adapters._patch import Method
from aegis.adapters._scope import DECIDED, current_scope

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


def witnessed(enforcer: Enforcer, name_of: Callable[..., str]) -> Callable[[Method], Method]:
    """Stand at the body of a tool, whose name `name_of` takes from what the body is called with."""

    def seen(args: tuple[Any, ...]) -> bool:
        """Whether the body must not run."""
        if _traps:
            _traps[-1].append(name_of(*args))
            return True
        scope = current_scope()
        if scope.decided is None and scope.loop != DECIDED:
            enforcer.uncovered(name_of(*args))
        return False

    def wrap(original: Method) -> Method:
        if inspect.iscoroutinefunction(original):

            async def abody(*args: Any, **kwargs: Any) -> Any:
                return None if seen(args) else await original(*args, **kwargs)

            return abody

        def body(*args: Any, **kwargs: Any) -> Any:
            return None if seen(args) else original(*args, **kwargs)

        return body

    return wrap
