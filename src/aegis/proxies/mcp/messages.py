"""JSON-RPC 2.0 messages as MCP uses them, read strictly, and the answers that the proxy gives by itself."""

from __future__ import annotations

import json
from typing import Any, Final

from aegis.core.strict_json import parse
from aegis.errors import InvalidCall

Message = dict[str, Any]
Id = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
BATCHING: Final = "2025-03-26"  # the one version of the protocol that has batches
UNSUPPORTED: Final = "unsupported"
REFUSED: Final = -32003  # in the range that JSON-RPC leaves to implementations
_MODERN: Final = "io.modelcontextprotocol/protocolVersion"


def read_messages(line: bytes) -> list[Message]:
    """The messages of one line, of which a batch holds several (protocol 2025-03-26).

    Raises `InvalidCall` for what two parsers could read differently.
    """
    value = parse(line)
    messages = value if isinstance(value, list) else [value]
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise InvalidCall("a message is not a JSON object")
    return messages


def asked_of(line: bytes, version: str) -> list[Message]:
    """What a client says in one line under a version of the protocol; raises `InvalidCall` as `read_messages` does,
    and (400) for a batch where the version has none."""
    messages = read_messages(line)
    if is_batch(line) and version != BATCHING:
        raise InvalidCall(f"batches are part of protocol {BATCHING} alone", code=UNSUPPORTED, status=400)
    return messages


def is_batch(line: bytes) -> bool:
    """Whether a line holds a list of messages."""
    return line.lstrip()[:1] == b"["


def written(message: Message) -> bytes:
    """One message as a line; text inside of it cannot end the line."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"


def id_of(message: Message) -> Id | None:
    """The id of a request or an answer; `None` where there is none that could be matched."""
    given = message.get("id")
    return given if isinstance(given, str) or type(given) is int else None


def is_request(message: Message) -> bool:
    """Whether an answer is expected."""
    return isinstance(message.get("method"), str) and id_of(message) is not None


def is_answer(message: Message) -> bool:
    """Whether this answers a request."""
    return "method" not in message and ("result" in message or "error" in message)


def params_of(message: Message) -> Message:
    """The parameters of a request; empty where there are none."""
    params = message.get("params")
    return params if isinstance(params, dict) else {}


def tool_error(request: Message, text: str) -> Message:
    """The answer to a `tools/call` that did not run: an error that the model reads, as the protocol has it."""
    result: Message = {"content": [{"type": "text", "text": text}], "isError": True}
    if is_modern(request):
        result["resultType"] = "complete"
    return {"jsonrpc": "2.0", "id": request.get("id"), "result": result}


def rpc_error(request_id: Id | None, text: str, code: int = REFUSED) -> Message:
    """The answer to a request that failed here."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}}


def is_modern(request: Message) -> bool:
    """Whether a request carries the envelope of the stateless protocol (2026-07-28 and later)."""
    meta = params_of(request).get("_meta")
    return isinstance(meta, dict) and _MODERN in meta


def version_of(request: Message) -> str:
    """The version of the protocol that a request of the stateless one names; empty in others."""
    meta = params_of(request).get("_meta")
    named = meta.get(_MODERN) if isinstance(meta, dict) else None
    return named if isinstance(named, str) and named.isascii() and named.isprintable() else ""


def envelope(request: Message) -> Message:
    """The part of a request's `_meta` that another request of the same client has to carry too."""
    meta = params_of(request).get("_meta")
    if not isinstance(meta, dict):
        return {}
    kept = {name: value for name, value in meta.items() if name.startswith("io.modelcontextprotocol/")}
    return {"_meta": kept} if kept else {}
