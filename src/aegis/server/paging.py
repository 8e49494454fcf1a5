"""Lists: `{"items": [...], "next": cursor or null}`; a cursor is opaque to clients and only names a place."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final

from aegis.errors import InvalidCall

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1_000  # bounds what one answer can hold
MAX_CURSOR_CHARS: Final = 1_200
_MAX_DIGITS: Final = 16


def page(items: Sequence[Any], following: str | int | None) -> dict[str, Any]:
    """One page; `following` is where the next one begins, or `None` at the end."""
    return {"items": list(items), "next": None if following is None else encode_cursor(str(following))}


def encode_cursor(place: str) -> str:
    """The cursor that stands for a place in a list."""
    return base64.urlsafe_b64encode(place.encode()).rstrip(b"=").decode("ascii")


def place_of(cursor: str | None) -> str | None:
    """The place that a cursor stands for; raises `InvalidCall` where no list gave it."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise _unknown() from error


def index_of(cursor: str | None) -> int | None:
    """The log index that a cursor stands for; raises `InvalidCall` where no list gave it."""
    place = place_of(cursor)
    if place is None:
        return None
    if not (place.isascii() and place.isdigit() and len(place) <= _MAX_DIGITS):
        raise _unknown()
    return int(place)


def _unknown() -> InvalidCall:
    return InvalidCall("`cursor` is not one of this list", code="malformed", hint="send back `next` as it came")
