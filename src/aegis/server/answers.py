"""Answers as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response


def encode(value: Any) -> bytes:
    """`value` as JSON text; integers of any size keep their exact digits."""
    try:
        return orjson.dumps(value)
    except TypeError:  # an integer beyond 64 bits, which only the slower encoder writes
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(value), status_code=status, headers=headers, media_type="application/json")
