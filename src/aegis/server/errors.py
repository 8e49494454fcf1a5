"""One shape for everything that goes wrong: `{"error": {"code", "message", "hint", "request_id"}}`.

Messages never carry input values, paths of this machine or tracebacks.
"""

from __future__ import annotations

from typing import Final

import orjson
from starlette.responses import Response
from starlette.types import Send

from aegis.errors import ConfigError, InvalidCall, StoreCorrupt, StoreError, is_exhausted

RETRY_AFTER_S: Final = 1  # a lost store is asked again by every call, so a client may come back at once

_UNAVAILABLE: Final = InvalidCall(
    "the log cannot be read or written at the moment", code="unavailable", hint="try again later", status=503
)
_CORRUPT: Final = InvalidCall(
    "the store answered something that it never stored",
    code="corrupt",
    hint="verify the log: `aegis log verify`",
    status=503,
)
_EXHAUSTED: Final = InvalidCall(
    "the gateway has no memory, files or threads left at the moment",
    code="unavailable",
    hint="try again later",
    status=503,
)
_INTERNAL: Final = InvalidCall(
    "the gateway failed on this request", code="internal", hint="the log of the gateway has the details", status=500
)


def refusal_of(error: Exception) -> InvalidCall:
    """What a client is told of `error`; anything unforeseen is a 500 without detail."""
    if isinstance(error, InvalidCall):
        return error
    if isinstance(error, StoreCorrupt):
        return _CORRUPT
    if isinstance(error, StoreError):
        return _UNAVAILABLE
    if isinstance(error, ConfigError):
        return InvalidCall(
            "the configuration does not compile",
            code="config_invalid",
            hint="\n".join(str(problem) for problem in error.problems[:20]),
        )
    return _EXHAUSTED if is_exhausted(error) else _INTERNAL


def error_body(refusal: InvalidCall, request_id: str) -> bytes:
    """The body that stands for `refusal`."""
    return orjson.dumps(
        {
            "error": {
                "code": refusal.code,
                "message": refusal.message,
                "hint": refusal.hint,
                "request_id": request_id,
            }
        }
    )


def error_headers(status: int) -> dict[str, str]:
    """The headers that the status demands (RFC 9110, 11.6.1 and 10.2.3)."""
    if status == 401:
        return {"www-authenticate": "Bearer"}
    if status == 503:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}


def error_response(error: Exception, request_id: str, headers: dict[str, str] | None = None) -> Response:
    """The response that stands for `error`."""
    refusal = refusal_of(error)
    return Response(
        error_body(refusal, request_id),
        status_code=refusal.status,
        headers={**error_headers(refusal.status), **(headers or {})},
        media_type="application/json",
    )


async def send_error(send: Send, error: Exception, request_id: str) -> None:
    """Send the response that stands for `error` where no middleware adds what every answer carries."""
    response = error_response(error, request_id, {"x-request-id": request_id, "cache-control": "no-store"})
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
