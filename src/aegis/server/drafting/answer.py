"""A model's answer as a proposal: one object of exactly this shape, or nothing.

(1) the text is one JSON object, bare or inside of one fence
(2) it keeps to the schema: known members, bounded, exactly one of `schema` and `deny`
(3) the proposed schema is small, without references and with few patterns: what it costs to compile and to try grows
    with its size alone (a dozen definitions that refer to each other twice cost as much as thousands)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, get_args

from jsonschema_rs import Draft202012Validator

from aegis.core.canonical import canonical
from aegis.core.outcome import Effect
from aegis.core.pointer import escape
from aegis.errors import ForeignAnswer, InvalidCall
from aegis.models.reading import read_json

MAX_ANSWER: Final = 65_536  # characters of a whole answer
MAX_SCHEMA: Final = 16_384  # bytes of the proposed schema
MAX_DEPTH: Final = 32  # levels of the proposed schema
MAX_PATTERNS: Final = 24  # each can cost a tenth of a second and ten megabytes to compile
MAX_CASES: Final = 12

_REFERRING: Final = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "$id", "$anchor", "$dynamicAnchor", "$defs", "definitions", "$schema"}
)
_PATTERNS: Final = frozenset({"pattern", "patternProperties"})


def _text(longest: int, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": longest, **more}


_CASE: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["tool", "arguments", "expect"],
    "properties": {
        "tool": _text(200),
        "arguments": {"type": "object"},
        "expect": {"enum": ["caught", "passes"]},
        "why": {"type": "string", "maxLength": 300},
    },
}
_PROPOSAL: Final = Draft202012Validator(
    {
        "type": "object",
        "additionalProperties": False,
        "required": ["name", "outcome", "explanation", "cases"],
        "oneOf": [{"required": ["schema"]}, {"required": ["deny"]}],
        "properties": {
            "name": _text(64, pattern="^[a-z0-9]+(-[a-z0-9]+)*$"),
            "description": {"type": "string", "maxLength": 500},
            "select": {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "properties": {
                    "tool": {"type": "array", "minItems": 1, "maxItems": 50, "items": _text(200)},
                    "category": _text(64),
                    "effect": {"enum": list(get_args(Effect))},
                },
            },
            "schema": {"type": "object"},
            "deny": {"type": "object"},
            "outcome": {"enum": ["block", "require_approval"]},
            "explanation": _text(2_000),
            "cases": {"type": "array", "minItems": 1, "maxItems": MAX_CASES, "items": _CASE},
        },
    }
)
_CANNOT: Final = Draft202012Validator(
    {"type": "object", "additionalProperties": False, "required": ["cannot"], "properties": {"cannot": _text(500)}}
)
_OF_POLICY: Final = ("name", "description", "select", "schema", "deny", "outcome")


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """What a model proposes: one policy as a configuration spells it, and calls to try it with.

    Without a policy, `explanation` says why there is none.
    """

    policy: dict[str, Any] | None
    explanation: str
    cases: list[dict[str, Any]]


def read_proposal(text: str) -> Proposal:
    """The proposal that `text` spells; raises `ForeignAnswer` for anything else."""
    # (1)
    value = read_json(text, max_chars=MAX_ANSWER)
    # (2)
    if _CANNOT.is_valid(value):
        return Proposal(policy=None, explanation=value["cannot"], cases=[])
    if not _PROPOSAL.is_valid(value):
        error = next(iter(_PROPOSAL.iter_errors(value)))
        place = "".join(f"/{escape(str(token))}" for token in error.instance_path)
        raise ForeignAnswer(f"the answer breaks `{error.kind.name}` at `{place or '/'}`")
    # (3)
    _check_schema(value.get("schema") or value.get("deny") or {})
    for case in value["cases"]:
        if any(depth > MAX_DEPTH for depth, _, _ in _members(case["arguments"], 1)):
            raise ForeignAnswer(f"the arguments of a case are deeper than {MAX_DEPTH} levels")
    policy = {name: value[name] for name in _OF_POLICY if name in value}
    return Proposal(policy=policy, explanation=value["explanation"], cases=value["cases"])


def _check_schema(schema: dict[str, Any]) -> None:
    try:
        size = len(canonical(schema))
    except InvalidCall as error:
        raise ForeignAnswer("the proposed schema is no JSON that can be kept") from error
    if size > MAX_SCHEMA:
        raise ForeignAnswer(f"the proposed schema is over {MAX_SCHEMA} bytes")
    patterns = 0
    for depth, key, below in _members(schema, 1):
        if depth > MAX_DEPTH:
            raise ForeignAnswer(f"the proposed schema is deeper than {MAX_DEPTH} levels")
        if key in _REFERRING:
            raise ForeignAnswer("the proposed schema refers to other schemas")
        if key in _PATTERNS:
            patterns += len(below) if isinstance(below, dict) else 1
    if patterns > MAX_PATTERNS:
        raise ForeignAnswer(f"the proposed schema has more than {MAX_PATTERNS} patterns")


def _members(value: Any, depth: int) -> Iterator[tuple[int, str, Any]]:
    """Every key below `value` with its depth; one level beyond the limit at most."""
    if depth > MAX_DEPTH + 1:
        return
    if isinstance(value, dict):
        for key, below in value.items():
            yield depth, key, below
            yield from _members(below, depth + 1)
    elif isinstance(value, list):
        yield depth, "", None
        for below in value:
            yield from _members(below, depth + 1)
