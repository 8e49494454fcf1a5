"""What several endpoints share: parameters of lists, and how statuses are described."""

from __future__ import annotations

from typing import Final

from aegis.core.outcome import Outcome, Reason
from aegis.server.endpoint import Body, Param, Reply
from aegis.server.http import DEFAULT_LIMIT, MAX_CURSOR_CHARS, MAX_LIMIT
from aegis.server.schemas.common import KIND, NAME, WHOLE, Schema, ref

_TIME: Final[Schema] = {"type": "string", "maxLength": 40, "format": "date-time"}
_WORDS: Final[dict[str, Schema]] = {
    "kind": KIND,
    "decision": {"type": "string", "enum": [outcome.word for outcome in Outcome]},
    "reason": {"type": "string", "enum": [reason.value for reason in Reason]},
}

LIMIT: Final = Param(
    name="limit",
    schema={"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    text="how many items at most",
)
CURSOR: Final = Param(
    name="cursor",
    schema={"type": "string", "minLength": 1, "maxLength": MAX_CURSOR_CHARS, "pattern": "^[A-Za-z0-9_-]+$"},
    text="`next` of the page before",
)
RETRY: Final = {"Retry-After": "whole seconds"}
SINCE: Final = Param(name="since", schema=_TIME, text="recorded at this time or later (RFC 3339)")
UNTIL: Final = Param(name="until", schema=_TIME, text="recorded at this time or earlier (RFC 3339)")

YAML: Final = Body(schema={"type": "object", "description": "`aegis.yaml`, as text"}, media="application/yaml")


def exact(*names: str) -> tuple[Param, ...]:
    """Filters that keep what has exactly the value."""
    return tuple(Param(name=name, schema=_WORDS.get(name, NAME), text=f"with this `{name}`") for name in names)


def named(text: str) -> tuple[Param, ...]:
    """The one name in a path."""
    return (Param(name="id", schema=NAME, text=text),)


def index(name: str, text: str, *, required: bool = False) -> Param:
    """A position or size of the log."""
    return Param(name=name, schema=WHOLE, text=text, required=required)


def ok(text: str, schema: str, status: int = 200) -> dict[int, Reply]:
    """The usual answer."""
    return {status: Reply(text=text, schema=ref(schema))}


def failing(**reasons: str) -> dict[int, Reply]:
    """Answers in the error shape, by status: `failing(s404="there is none")`."""
    return {int(name[1:]): Reply(text=text, schema=ref("Error")) for name, text in reasons.items()}
