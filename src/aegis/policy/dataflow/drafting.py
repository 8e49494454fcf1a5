"""Declarations of tools for a person to confirm, derived from names, schemas and formats; nothing is declared by this.

What is proposed loosens nothing by itself: it says of a tool what Aegis would derive, written down where a person can
correct it, and whose word its results are likely to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import yaml

from aegis.policy.dataflow.declare import argument_of, does_with, name_words
from aegis.policy.dataflow.reading import is_prose_name
from aegis.policy.dataflow.words import lexicon_folder

MAX_FIELDS: Final = 32  # of one tool's arguments, and of its results
_DEPTH: Final = 4  # levels of a result whose names are read


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenTool:
    """What is known of a tool: the schemas of its arguments by name, and the dotted names in its results."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    results: tuple[str, ...] = ()


@cache
def _tables() -> dict[str, Any]:
    value: dict[str, Any] = yaml.load((lexicon_folder() / "drafts.yaml").read_text("utf-8"), yaml.CSafeLoader)
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
        kind = _kind_of(name, schema) if sink is None else sink.kind
        if kind is not None:
            arguments[name] = {"is": kind} if sink is None else {"is": kind, "sink": True}
    if arguments:
        draft["arguments"] = arguments
    if does in {"read", "fetch"}:
        draft["result"] = _result_of(tool, does)
    return draft


def _kind_of(name: str, schema: Any) -> str | None:
    """What an argument is that is no sink: by the format of its schema, else by whole words of its name."""
    tables = _tables()
    if isinstance(schema, Mapping):
        inner = schema.get("items") if schema.get("type") == "array" else schema
        told = inner.get("format") if isinstance(inner, Mapping) else None
        if isinstance(told, str) and told in tables["formats"]:
            return str(tables["formats"][told])
    held = frozenset(name_words(name))
    return next((row["is"] for row in tables["kinds"] if any(held.issuperset(one) for one in row["names"])), None)


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
