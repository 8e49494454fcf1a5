"""Declarations of tools for a person to confirm, derived from names, schemas and formats; nothing is declared by this.

What is proposed loosens nothing by itself: it says of a tool what Aegis would derive, written down where a person can
correct it, and whose word its results are likely to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct, field

from aegis.policy.dataflow.declare import argument_of, does_with, name_words
from aegis.policy.dataflow.forms import read_table
from aegis.policy.dataflow.reading import is_prose_name

MAX_FIELDS: Final = 32  # of one tool's arguments, and of its results
_DEPTH: Final = 4  # levels of a result whose names are read


class SeenTool(Struct, frozen=True, kw_only=True):
    """What is known of a tool: the schemas of its arguments by name, and the dotted names in its results."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ()


@cache
def _tables() -> dict[str, Any]:
    value: dict[str, Any] = read_table("drafts.yaml")
    return value


def draft_of(tool: SeenTool) -> dict[str, Any]:
    """The entry of `tools` that is proposed: risk, deed, arguments and results; what nothing says is left out."""
    tables = _tables()
    does = does_with(tool.name, tool.arguments)
    risk = next((tier for tier, deeds in tables["risk"].items() if does in deeds), "medium")
    draft: dict[str, Any] = {"risk": risk}
    if does != "other":
        draft["does"] = does
    arguments = {}
    for name, schema in list(tool.arguments.items())[:MAX_FIELDS]:
        sink = argument_of(does, name)
        kind = _kind_by_format(schema) or (_kind_by_name(name) if sink is None else sink.kind)
        if kind is not None:
            arguments[name] = {"is": kind} if sink is None else {"is": kind, "sink": True}
    if arguments:
        draft["arguments"] = arguments
    if does in {"read", "fetch"}:
        draft["result"] = _result_of(tool, does)
    return draft


def _kind_by_format(schema: Any) -> str | None:
    """What an argument is by the format of its schema, or of the items of its list."""
    if not isinstance(schema, Mapping):
        return None
    inner = schema.get("items") if schema.get("type") == "array" else schema
    told = inner.get("format") if isinstance(inner, Mapping) else None
    kind: str | None = _tables()["formats"].get(told) if isinstance(told, str) else None
    return kind


def _kind_by_name(name: str) -> str | None:
    """What an argument is that is no sink, by whole words of its name."""
    held = frozenset(name_words(name))
    return next((row["is"] for row in _tables()["kinds"] if any(held.issuperset(one) for one in row["names"])), None)


def _result_of(tool: SeenTool, does: str) -> dict[str, Any]:
    tables, held = _tables(), frozenset(name_words(tool.name))
    is_untrusted = does == "fetch" or not held.isdisjoint(tables["untrusted"])
    result: dict[str, Any] = {"trust": "untrusted" if is_untrusted else "mixed"}
    levels = (level for level, words in tables["sensitivity"].items() if not held.isdisjoint(words))
    level = next(levels, None)
    if level is not None:
        result["sensitivity"] = level
    if tool.results and not is_untrusted:
        named = {name: name.rpartition(".")[2] for name in tool.results[:MAX_FIELDS]}
        result["fields"] = {name: "untrusted" if is_prose_name(last) else "structured" for name, last in named.items()}
    return result


def names_in(value: Any) -> tuple[str, ...]:
    """The dotted names of a result's leaves, `*` for the places of lists; each once, no value."""
    return _first(_names(value, "", 0))


def names_of_schema(schema: Any) -> tuple[str, ...]:
    """The same of the schema of a tool's results."""
    return _first(_schema_names(schema, "", 0))


def _first(names: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) >= MAX_FIELDS:
            break
    return tuple(found)


def _names(value: Any, path: str, depth: int) -> Iterator[str]:
    if depth > _DEPTH:
        return
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _names(inner, f"{path}.{name}" if path else str(name), depth + 1)
    elif isinstance(value, list):
        for inner in value[:MAX_FIELDS]:
            yield from _names(inner, f"{path}.*" if path else "*", depth + 1)
    elif path:
        yield path


def _schema_names(schema: Any, path: str, depth: int) -> Iterator[str]:
    if depth > _DEPTH or not isinstance(schema, Mapping):
        return
    properties, items = schema.get("properties"), schema.get("items")
    if isinstance(properties, Mapping):
        for name, inner in properties.items():
            yield from _schema_names(inner, f"{path}.{name}" if path else str(name), depth + 1)
    elif isinstance(items, Mapping):
        yield from _schema_names(items, f"{path}.*" if path else "*", depth + 1)
    elif path:
        yield path
