"""Arguments that are not there yet: generators, iterators, streams and awaitables of the calling program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from io import IOBase
from typing import Any, Final

from aegis.core.call import ReadCall, ToolCall
from aegis.core.canonical import canonical
from aegis.core.json import escape
from aegis.errors import InvalidCall

MAX_DEPTH: Final = 200  # canonical JSON refuses deeper values


def readable(call: ToolCall) -> tuple[ToolCall, bytes]:
    """The call and its canonical arguments; what is not there yet stands as a marker and is declared unresolved.

    Nothing is consumed. Raises `InvalidCall` for arguments that are no JSON for another reason.
    """
    if isinstance(call, ReadCall):
        return call, call.canonical
    try:
        return call, canonical(call.arguments)
    except InvalidCall:
        arguments, found = without_streams(call.arguments)
        if not found:
            raise
    marked = replace(call, arguments=arguments, unresolved=(*call.unresolved, *found))
    return marked, canonical(arguments)


def without_streams(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`arguments` with every generator, iterator and open stream replaced by a marker, and where they stood.

    Nothing is consumed: what is replaced is told by its type alone.
    """
    found: list[str] = []
    replaced: dict[str, Any] = _replace(arguments, "", found, 0)
    return replaced, tuple(found)


def _replace(value: Any, path: str, found: list[str], depth: int) -> Any:
    if isinstance(value, dict) and depth < MAX_DEPTH:
        return {key: _replace(inner, f"{path}/{escape(str(key))}", found, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        return [_replace(inner, f"{path}/{index}", found, depth + 1) for index, inner in enumerate(value)]
    if isinstance(value, Iterator | AsyncIterator | IOBase) or _is_awaitable(value):
        found.append(path)
        return f"<pending:{type(value).__name__}>"
    return value


def _is_awaitable(value: Any) -> bool:
    return not isinstance(value, str | int | float | bool | None) and hasattr(type(value), "__await__")
