"""The least that a server can do with a decision request: read it and answer as many bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]

_BODY = b'{"decision":"allow"' + b" " * 900 + b"}"
_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(_BODY)).encode())],
}
_END: Message = {"type": "http.response.body", "body": _BODY}


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answers every HTTP request with the same bytes."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        continue
    await send(_START)
    await send(_END)
