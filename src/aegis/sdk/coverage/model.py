"""What is fired, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

State = Literal["covered", "UNCOVERED", "not reached"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Canary:
    """One call of one registered tool over one path of its framework.

    `body` gives what stands in for the body while the canary is fired, where no witness does.
    """

    tool: str
    path: str
    fire: Callable[[], Any]
    body: Callable[[], AbstractContextManager[None]] = nullcontext


@dataclass(frozen=True, kw_only=True, slots=True)
class Covered:
    """Whether a decision came before the body; `not reached` where the framework let the canary not so far."""

    framework: str
    tool: str
    path: str
    state: State


def sample(schema: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a JSON Schema of an object takes, as simple as can be."""
    properties = schema.get("properties") or {}
    return {name: _value(one) for name, one in properties.items() if isinstance(one, dict)}


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf"):
        if schema.get(choice):
            return _value(schema[choice][0])
    if schema.get("type") == "object":
        return sample(schema)
    values: dict[str, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}
    return values.get(str(schema.get("type")), "canary")
