"""Parts of runs by name: those that come with Aegis, and those that installed packages register by entry point.

A package is loaded where one of its parts is named, and only then; a name of a built-in part is never another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

Make = Callable[[Mapping[str, Any]], Any]
"""Makes a part from its options; raises `ValueError` on bad ones, and starts nothing before the part is used."""

NO_OPTIONS: Final[Mapping[str, Any]] = {}


class RunParts(Mapping[str, Make]):
    """The parts of one kind."""

    def __init__(self, group: str, built_in: Mapping[str, Make]) -> None:
        self._found: dict[str, Make | EntryPoint] = {point.name: point for point in entry_points(group=group)}
        self._found.update(built_in)

    def __getitem__(self, name: str) -> Make:
        found = self._found[name]
        if not isinstance(found, EntryPoint):
            return found
        try:
            made: Make = found.load()
        except Exception as error:
            raise ValueError(f"`{found.value}` cannot be loaded: {type(error).__name__}") from error
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, name: object) -> bool:
        return name in self._found  # without loading it

    def make(self, name: str, options: Mapping[str, Any], *methods: str) -> Any:
        """The part `name` with its options; raises `ValueError` that says what is wrong, whatever its maker raised."""
        try:
            part = self[name](options)
        except ValueError:
            raise
        except Exception as error:
            raise ValueError(f"it cannot be made: {type(error).__name__}") from error
        missing = [method for method in methods if not callable(getattr(part, method, None))]
        if missing:
            raise ValueError(f"it has no method `{missing[0]}`")
        return part
