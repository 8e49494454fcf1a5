"""The APIs that are proxied: where each is, how it spells calls, and how it says that something went wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from aegis.errors import InvalidCall
from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.model import ProxyDialect, Wire, WireEvent
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses

Vendor = Literal["openai", "anthropic"]

_OPENAI_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES: Final = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error",
}  # fmt: skip


def openai_error(refusal: InvalidCall, request_id: str) -> Wire:
    """The error object of OpenAI's API, with the members of our own error shape beside it."""
    kind = _OPENAI_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "server_error")
    return {
        "error": {
            "message": refusal.message,
            "type": kind,
            "param": None,
            "code": refusal.code,
            "hint": refusal.hint,
            "request_id": request_id,
        }
    }


def anthropic_error(refusal: InvalidCall, request_id: str) -> Wire:
    """The error object of Anthropic's API, with the members of our own error shape inside."""
    kind = _ANTHROPIC_TYPES.get(refusal.status, "invalid_request_error" if refusal.status < 500 else "api_error")
    error = {
        "type": kind,
        "message": refusal.message,
        "code": refusal.code,
        "hint": refusal.hint,
        "request_id": request_id,
    }
    return {"type": "error", "error": error, "request_id": request_id}


def _chat_event(error: Wire) -> WireEvent:
    return WireEvent(data=json.dumps(error))


def _responses_event(error: Wire) -> WireEvent:
    inner = error["error"]
    wire = {"type": "error", "code": inner["code"], "message": inner["message"], "param": None, "sequence_number": 0}
    return WireEvent(event="error", data=json.dumps(wire))


def _anthropic_event(error: Wire) -> WireEvent:
    return WireEvent(event="error", data=json.dumps(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class Format:
    """One API. `upstream` is its path below a provider's base URL; `breaks` the event that ends a broken stream."""

    name: str
    vendor: Vendor
    upstream: str
    dialect: ProxyDialect
    error: Callable[[InvalidCall, str], Wire]
    breaks: Callable[[Wire], WireEvent]


CHAT: Final = Format(
    name="chat",
    vendor="openai",
    upstream="/chat/completions",
    dialect=OpenAIChat(),
    error=openai_error,
    breaks=_chat_event,
)
RESPONSES: Final = Format(
    name="responses",
    vendor="openai",
    upstream="/responses",
    dialect=OpenAIResponses(),
    error=openai_error,
    breaks=_responses_event,
)
MESSAGES: Final = Format(
    name="messages",
    vendor="anthropic",
    upstream="/v1/messages",
    dialect=AnthropicMessages(),
    error=anthropic_error,
    breaks=_anthropic_event,
)
FORMATS: Final = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": MESSAGES}
BY_NAME: Final = {one.name: one for one in FORMATS.values()}
