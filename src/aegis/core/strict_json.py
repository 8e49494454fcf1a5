"""JSON in, strictly: what two parsers could read differently is refused.

Refused: duplicate keys, NaN and infinities, numbers beyond a double, lone surrogates, invalid
UTF-8, a byte order mark, trailing data. Large integers keep their exact digits.
"""

from __future__ import annotations

import json
from typing import Any, Final

import orjson

from aegis.errors import InvalidCall

_WHITE: Final = b" \t\r\n"  # RFC 8259, section 2


def parse(data: bytes) -> Any:
    """The value that `data` spells, and that every strict parser would read the same.

    Raises `InvalidCall` naming what is wrong; the message never quotes the data. `MemoryError` says nothing of it.
    """
    # (1) Grammar, UTF-8, surrogates and finite numbers, by the fast parser.
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if error.msg.startswith("Not enough memory"):  # no fault of the text
            raise MemoryError from error
        raise InvalidCall(f"the body is not strict JSON: {error.msg}", hint=f"byte {error.pos}") from error
    # (2) Bytes that come back unchanged hid no duplicate key and lost no digit. White space may differ: it
    # separates no tokens of JSON, so the same text without it is the same sequence of tokens.
    try:
        written = orjson.dumps(value)
        if written == data or written.translate(None, _WHITE) == data.translate(None, _WHITE):
            return value
    except orjson.JSONEncodeError:
        pass  # nested beyond the serialiser's limit: the careful parser below has its own
    # (3) Everything else goes through the parser that sees every pair and every digit.
    try:
        return _CAREFUL.decode(data.decode())
    except RecursionError as error:
        raise InvalidCall("the body is nested too deeply", code="too_deep") from error
    except ValueError as error:
        raise InvalidCall("the body is not strict JSON: a number has too many digits") from error


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise InvalidCall("an object has the same key twice", code="duplicate_key")
    return value


_CAREFUL = json.JSONDecoder(object_pairs_hook=_pairs)
