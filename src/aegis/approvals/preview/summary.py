"""What cannot be tried is summed up: HTTP requests, and cards for mail, payments and the like."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from aegis.core.masking import mask
from aegis.core.pointer import resolve
from aegis.core.previewing import Looked, Preview, ToolPreview, no_preview

MAX_SHOWN: Final = 2_000  # characters of one value of a card; the size of what is longer is said


def http(look: Looked, method: str, url: str, headers: Any, body: Any) -> Preview:
    """A request by its method, host, address, masked headers and size; nothing is sent."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return no_preview("the address is not a URL", "http")
    if not host:
        return no_preview("the address names no host", "http")
    effect: dict[str, Any] = {
        "method": method.upper(),
        "scheme": parts.scheme,
        "host": host,
        "port": port or {"https": 443, "http": 80}.get(parts.scheme),
        "path": parts.path or "/",
        "query_bytes": len(parts.query.encode("utf-8", "replace")),
        "addresses": _addresses(host) if look.rules.resolve else "not looked up",
        "body_bytes": _size(body),
    }
    if isinstance(headers, Mapping):
        effect["headers"] = {str(name): mask(str(value)) for name, value in headers.items()}
    return Preview(state="done", kind="http", effect=effect)


def card(look: Looked, how: ToolPreview) -> Preview:
    """The title and fields that the registry asks for, filled from the call; what is missing is said."""
    fields = {name: _field(look.arguments, pointer) for name, pointer in how.fields.items()}
    return Preview(state="done", kind="card", effect={"title": how.title or look.tool, "fields": fields})


def _field(arguments: dict[str, Any], pointer: str) -> Any:
    try:
        value = resolve(arguments, pointer)
    except (LookupError, ValueError, TypeError):
        return {"missing": True}
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    if len(text) <= MAX_SHOWN:
        return value
    return {"begins": text[:MAX_SHOWN], "characters": len(text)}


def _addresses(host: str) -> list[str] | str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "not found"
    return sorted({str(address[4][0]) for address in found})


def _size(body: Any) -> int:
    if body is None:
        return 0
    return len(body.encode("utf-8", "replace")) if isinstance(body, str) else len(orjson.dumps(body))
