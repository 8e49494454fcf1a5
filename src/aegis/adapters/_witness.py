"""Who sees a body begin: one that runs under no decision went round every seam, and is told of.

The witness stands at the body, underneath the seam that decides. While canaries are fired it stands in for the body:
nothing of a real tool runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from aegis.adapters._enforce import Enforcer
from aegis.adapters._patch import Method
from aegis.adapters._scope import current_scope

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


def witnessed(enforcer: Enforcer, name_of: Callable[..., str]) -> Callable[[Method], Method]:
    """Stand at the body of a tool, whose name `name_of` takes from what the body is called with."""

    def seen(args: tuple[Any, ...]) -> bool:
        """Whether the body must not run."""
        if _traps:
            _traps[-1].append(name_of(*args))
            return True
        if current_scope().decided is None:
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
