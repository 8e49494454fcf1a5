"""The APIs that are proxied: where each is, how it spells calls, and how it says that something went wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, Literal
from urllib.parse import quote

from msgspec import Struct

from aegis.errors import InvalidCall
from aegis.wire.anthropic import AnthropicMessages
from aegis.wire.bedrock import BEDROCK
from aegis.wire.gemini import GEMINI as GEMINI_PARTS
from aegis.wire.model import ProxyDialect, Wire, WireEvent
from aegis.wire.ollama import LineReader, OllamaChat, line_bytes
from aegis.wire.openai_chat import OpenAIChat
from aegis.wire.openai_responses import OpenAIResponses
from aegis.wire.sse import EVENT_STREAM, MAX_EVENT_BYTES, SSE, Framing, failure

Vendor = Literal["openai", "anthropic", "gemini", "ollama", "bedrock"]

_OPENAI_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_GEMINI_STATUSES: Final = {
    401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
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


def gemini_error(refusal: InvalidCall, request_id: str) -> Wire:
    """The error object of Google's APIs (google.rpc.Status), with the members of our own error shape inside."""
    status = _GEMINI_STATUSES.get(refusal.status, "INVALID_ARGUMENT" if refusal.status < 500 else "INTERNAL")
    error = {"code": refusal.status, "message": refusal.message, "status": status}
    return {"error": {**error, "reason": refusal.code, "hint": refusal.hint, "request_id": request_id}}


def ollama_error(refusal: InvalidCall, request_id: str) -> Wire:
    """The error object of Ollama, with the members of our own error shape beside it."""
    return {"error": refusal.message, "code": refusal.code, "hint": refusal.hint, "request_id": request_id}


def _chat_event(error: Wire) -> WireEvent:
    return WireEvent(data=json.dumps(error))


def _responses_event(error: Wire) -> WireEvent:
    inner = error["error"]
    wire = {"type": "error", "code": inner["code"], "message": inner["message"], "param": None, "sequence_number": 0}
    return WireEvent(event="error", data=json.dumps(wire))


def _anthropic_event(error: Wire) -> WireEvent:
    return WireEvent(event="error", data=json.dumps(error))


class Asked(Struct, frozen=True, kw_only=True):
    """What a request asks for: the model, a stream or not, and the path below the provider's base URL."""

    model: str
    streamed: bool
    upstream: str


def _in_body(format_: Format, request: Wire, path: Mapping[str, str], query: str) -> Asked:
    """The model and the wish for a stream stand in the request."""
    return Asked(model=_named(request.get("model")), streamed=bool(request.get("stream")), upstream=format_.upstream)


def _in_lines(format_: Format, request: Wire, path: Mapping[str, str], query: str) -> Asked:
    """A stream is what Ollama gives to whoever does not say anything else."""
    streamed = request.get("stream", True) is not False
    return Asked(model=_named(request.get("model")), streamed=streamed, upstream=format_.upstream)


def _in_path(format_: Format, request: Wire, path: Mapping[str, str], query: str) -> Asked:
    """The model and the method stand in the path; raises `InvalidCall` for a method that is not proxied."""
    model, _, method = path.get("call", "").rpartition(":")
    if method not in ("generateContent", "streamGenerateContent"):
        raise InvalidCall("this method is not proxied", code="not_found", status=404)
    streamed = method == "streamGenerateContent"
    if query and query != "alt=sse":
        hint = "the key is `x-goog-api-key`"
        raise InvalidCall("of the query, only `alt=sse` is taken", code="unsupported", hint=hint, status=400)
    if streamed and query != "alt=sse":  # the other form is one JSON text, whose parts nobody reads as they come
        raise InvalidCall("a stream is asked for with `alt=sse`", code="unsupported", status=400)
    upstream = f"{format_.upstream}/{_segment(model)}:{method}" + ("?alt=sse" if streamed else "")
    return Asked(model=_named(model), streamed=streamed, upstream=upstream)


def _converse(format_: Format, request: Wire, path: Mapping[str, str], query: str) -> Asked:
    """The model stands in the path, and the method after it; raises `InvalidCall` for one that is not proxied."""
    model, _, method = path.get("call", "").rpartition("/")
    if method not in ("converse", "converse-stream") or query:
        raise InvalidCall("this method is not proxied", code="not_found", status=404)
    upstream = f"{format_.upstream}/{quote(_segment(model), safe='')}/{method}"
    return Asked(model=model, streamed=method == "converse-stream", upstream=upstream)


def bedrock_error(refusal: InvalidCall, request_id: str) -> Wire:
    """The error object of AWS's JSON APIs, with the members of our own error shape beside it."""
    return {"message": refusal.message, "code": refusal.code, "hint": refusal.hint, "request_id": request_id}


def _named(model: object) -> str:
    if not isinstance(model, str) or not model:
        raise InvalidCall("`model` must name a model", code="model", status=400)
    return model


def _segment(model: str) -> str:
    """A model's name that leads nowhere else; raises `InvalidCall` for any other one."""
    if not model or not all(sign.isascii() and (sign.isalnum() or sign in "-._:") for sign in model) or ".." in model:
        raise InvalidCall("`model` must name a model", code="model", status=400)
    return model


class Format(Struct, frozen=True, kw_only=True):
    """One API. `upstream` is its path below a provider's base URL; `breaks` the event that ends a broken stream."""

    name: str
    vendor: Vendor
    upstream: str
    dialect: ProxyDialect
    error: Callable[[InvalidCall, str], Wire]
    breaks: Callable[[Wire], WireEvent]
    framing: Framing = SSE
    asked: Callable[[Format, Wire, Mapping[str, str], str], Asked] = _in_body


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
GEMINI: Final = Format(
    name="gemini",
    vendor="gemini",
    upstream="/v1beta/models",
    dialect=GEMINI_PARTS,
    error=gemini_error,
    breaks=_chat_event,
    asked=_in_path,
)
OLLAMA: Final = Format(
    name="ollama",
    vendor="ollama",
    upstream="/api/chat",
    dialect=OllamaChat(),
    error=ollama_error,
    breaks=_chat_event,
    framing=Framing(media="application/x-ndjson", reader=lambda: LineReader(MAX_EVENT_BYTES), encode=line_bytes),
    asked=_in_lines,
)
CONVERSE: Final = Format(
    name="converse",
    vendor="bedrock",
    upstream="/model",
    dialect=BEDROCK,
    error=bedrock_error,
    breaks=lambda error: failure({"message": error["message"]}),
    framing=EVENT_STREAM,
    asked=_converse,
)
FORMATS: Final = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1beta/models/{call:path}": GEMINI,
    "/api/chat": OLLAMA,
    "/model/{call:path}": CONVERSE,
}
BY_NAME: Final = {one.name: one for one in FORMATS.values()}
