"""Replacing methods of foreign classes, and putting them back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from aegis.errors import UnhookedFramework

Method = Callable[..., Any]


class Patches:
    """The replaced methods of one hooking. After `undo` nothing of them acts any more.

    A replacement that somebody else has wrapped meanwhile stays in the chain and passes calls on.
    """

    def __init__(self) -> None:
        self._done: list[tuple[type, str, Method, Method]] = []
        self._active = True

    def replace(self, owner: type, name: str, make: Callable[[Method], Method]) -> None:
        """Put `make(original)` in place of a method that `owner` itself defines.

        Raises `UnhookedFramework` where there is no such method: the seam is not what it was.
        """
        original = owner.__dict__.get(name)
        if not inspect.isfunction(original):
            raise UnhookedFramework(f"`{owner.__module__}.{owner.__qualname__}` has no method `{name}` to hook")
        wrapped = make(original)

        if inspect.iscoroutinefunction(original):

            @functools.wraps(original)
            async def areplacement(*args: Any, **kwargs: Any) -> Any:
                return await (wrapped if self._active else original)(*args, **kwargs)

            replacement: Method = areplacement
        else:

            @functools.wraps(original)
            def plain(*args: Any, **kwargs: Any) -> Any:
                return (wrapped if self._active else original)(*args, **kwargs)

            replacement = plain
        setattr(owner, name, replacement)
        self._done.append((owner, name, original, replacement))

    def undo(self) -> None:
        """Put every original back, and make the replacements that cannot be removed inert."""
        self._active = False
        for owner, name, original, replacement in reversed(self._done):
            if owner.__dict__.get(name) is replacement:
                setattr(owner, name, original)
        self._done.clear()
