"""Building blocks: names, digests, receipts' places, the error shape, lists."""

from __future__ import annotations

from typing import Any, Final

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.receipt import KINDS

Schema = dict[str, Any]

# At least one character that is no blank, and no control anywhere.
_CONTROLS: Final = "\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029"
_VISIBLE: Final = f"^[^{_CONTROLS}]*[^\\s{_CONTROLS}][^{_CONTROLS}]*$"
NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_CHARS, "pattern": _VISIBLE}
TEXT: Final[Schema] = {"type": "string"}
DIGEST: Final[Schema] = {"type": "string", "pattern": "^sha-256:[0-9a-f]{64}$"}
HEX32: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
ID: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
WHOLE: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}
ANY_OBJECT: Final[Schema] = {"type": "object"}


def later(what: str) -> Schema:
    """A member that the contract has and this version cannot keep: refused, not ignored."""
    return {"not": {}, "description": f"{what}; not available in this version"}


def ref(name: str) -> Schema:
    """A reference to a named schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def closed(properties: dict[str, Schema], *required: str) -> Schema:
    """An object with these members and no others; all are required unless some are named."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required) or list(properties),
        "additionalProperties": False,
    }


def optional(properties: dict[str, Schema]) -> Schema:
    """An object with some of these members and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def one_of(properties: dict[str, Schema]) -> Schema:
    """An object with exactly one of these members and no others."""
    return {**optional(properties), "description": "exactly one member", "minProperties": 1, "maxProperties": 1}


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def listing(item: str) -> Schema:
    """One page of a list."""
    return closed({"items": {"type": "array", "items": ref(item)}, "next": nullable(TEXT)})


SCHEMAS: Final[dict[str, Schema]] = {
    "Error": closed(
        {"error": closed({"code": TEXT, "message": TEXT, "hint": TEXT, "request_id": TEXT})},
    ),
    "ProviderError": {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {"code": TEXT, "message": TEXT, "hint": TEXT, "request_id": TEXT, "type": TEXT},
                "required": ["code", "message", "hint", "request_id", "type"],
            }
        },
        "required": ["error"],
    },
    "ReceiptRef": closed({"id": ID, "index": WHOLE, "leaf_hash": HEX32}),
}


KIND: Final[Schema] = {"type": "string", "enum": list(KINDS)}
