"""Arguments as Cedar sees them: JSON Schemas as Cedar types, and values checked against those.

Cedar skips a policy that meets a missing or wrongly typed attribute, `forbid` included. So only what
a tool's schema declares is shown to policies, and a value of another type is an error here.

Text, whole numbers, truth values, lists of one such type and objects of declared members are shown;
everything else (fractions, unions, undeclared members) is not visible to policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 4  # levels of objects that are shown: bounds what a schema makes us copy
_LONG: Final = 2**63  # Cedar's Long is a signed 64-bit integer
_PLAIN: Final[Mapping[str, str]] = {"string": "String", "integer": "Long", "boolean": "Boolean"}

CedarType = dict[str, Any]


class TypeMismatch(Exception):
    """A value does not have the type that policies were validated against; `place` are keys and positions."""

    def __init__(self, place: tuple[str | int, ...]):
        super().__init__("a value has another type than its schema")
        self.place = place


def record_type(schema: Mapping[str, Any] | None) -> CedarType | None:
    """The Cedar record type of an object schema, or `None` where nothing of it can be shown."""
    return None if schema is None else _object(schema, 0)


def project(type_: CedarType, value: Any, place: tuple[str | int, ...] = ()) -> Any:
    """The part of `value` that `type_` describes; raises `TypeMismatch` where the two disagree."""
    kind = type_["type"]
    if kind == "Record":
        if not isinstance(value, dict):
            raise TypeMismatch(place)
        shown: dict[str, Any] = {}
        for name, inner in type_["attributes"].items():
            if name in value:
                shown[name] = project(inner, value[name], (*place, name))
            elif inner["required"]:
                raise TypeMismatch((*place, name))
        return shown
    if kind == "Set":
        if not isinstance(value, list):
            raise TypeMismatch(place)
        return [project(type_["element"], item, (*place, position)) for position, item in enumerate(value)]
    fits = (
        (kind == "String" and isinstance(value, str))
        or (kind == "Boolean" and isinstance(value, bool))
        or (kind == "Long" and type(value) is int and -_LONG <= value < _LONG)
    )
    if not fits:
        raise TypeMismatch(place)
    return value


def _object(schema: Mapping[str, Any], depth: int) -> CedarType | None:
    properties = schema.get("properties")
    if depth > MAX_DEPTH or not isinstance(properties, dict):
        return None
    listed = schema.get("required")
    required = listed if isinstance(listed, list) else []
    attributes: dict[str, CedarType] = {}
    for name, inner in properties.items():
        shown = _type(inner, depth)
        # Members whose names start with `__` are escapes of Cedar's JSON, not attributes.
        if shown is not None and not name.startswith("__"):
            attributes[name] = {**shown, "required": name in required}
    return {"type": "Record", "attributes": attributes} if attributes else None


def _type(schema: object, depth: int) -> CedarType | None:
    if not isinstance(schema, dict):
        return None
    kind = schema.get("type")
    if not isinstance(kind, str):
        return None
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind == "array":
        element = _type(schema.get("items"), depth + 1)
        return None if element is None else {"type": "Set", "element": element}
    return _object(schema, depth + 1) if kind == "object" else None
