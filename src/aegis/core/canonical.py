"""Canonical JSON: one value, one sequence of bytes (RFC 8785).

One extension: integers beyond 2^53-1 are written with their exact digits, never rounded, because a
payment or an identifier that differs in its last digit is another call. A fast serialiser does the
work on the subset on which it was proved equal (string keys inside the Basic Multilingual Plane, no
floats, integers within 2^53-1); everything else takes the slow path.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from hashlib import sha256 as _sha256
from typing import Any, Final

import orjson
import rfc8785

from aegis.errors import InvalidCall

# Digests that name a call, and salted commitments that stand for them in the log.
#
# A leaf never carries a digest of arguments: an unsalted digest of an amount or of a yes is found by trying. It
# carries a commitment under a per-call 256-bit salt, which is erased with the payload.

SALT_BYTES: Final = 32
KID_DIGITS: Final = 32
_ALGORITHM: Final = "sha-256:"
_CALL_DOMAIN: Final = b"aegis/call-commitment/v1\0"
_PAYLOAD_DOMAIN: Final = b"aegis/payload-commitment/v1\0"


def sha256(data: bytes) -> str:
    """`sha-256:` and the lower-case hex digest of `data`."""
    return _ALGORITHM + _sha256(data).hexdigest()


def kid_of(public: bytes) -> str:
    """The identifier of a public key: the first 128 bits of its SHA-256, in hex; it vouches for the key."""
    return _sha256(public).hexdigest()[:KID_DIGITS]


def call_digest(*, server: str | None, tool: str, arguments: bytes) -> str:
    """The digest of a call: SHA-256 over the canonical JSON of `{arguments, server, tool}`.

    `arguments` are canonical bytes; over the submitted ones this is the request digest, over those
    that will run it is the call digest.
    """
    named = b',"server":' + orjson.dumps(server) + b',"tool":' + orjson.dumps(tool)
    return _ALGORITHM + _sha256(b'{"arguments":' + arguments + named + b"}").hexdigest()


def call_commitment(salt: bytes, request_digest: str, digest: str) -> str:
    """Commits a leaf to both digests of a call under `salt`."""
    return _ALGORITHM + _sha256(_CALL_DOMAIN + salt + request_digest.encode() + b"\0" + digest.encode()).hexdigest()


def payload_commitment(salt: bytes, payload: bytes) -> str:
    """Commits a leaf to the payload that is stored beside the log, under `salt`."""
    return _ALGORITHM + _sha256(_PAYLOAD_DOMAIN + salt + payload).hexdigest()


MAX_NESTING: Final = 200  # deeper values are refused before they can exhaust a stack
MAX_VALUES: Final = 4_000_000  # shared containers unfold to exponentially many values: bounds the unfolding
MAX_DIGITS: Final = 4_000  # turning digits into a number is quadratic: bounds what one number costs
_MAX_BITS: Final = 13_300  # no number of `MAX_DIGITS` digits has more, and Python still prints all of them
_SAFE_INTEGER: Final = 2**53 - 1
_SURROGATES: Final = "\ud800"


def canonical(value: Any) -> bytes:
    """The canonical bytes of a JSON value.

    Raises `InvalidCall` for anything that is not JSON: other types, keys that are not strings, NaN
    and infinities, lone surrogates, nesting beyond `MAX_NESTING` (cycles included), more than
    `MAX_VALUES` values, integers of more than `MAX_DIGITS` digits.
    """
    try:
        if _is_simple(value):
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        out: list[bytes] = []
        _write(value, out, 0)
        return b"".join(out)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidCall("a value is not valid JSON text (lone surrogate or unsupported type)") from error


# The canonical bytes of a record that this project built: ASCII keys, strings, small integers. The caller guarantees
# the subset; nothing is checked.
canonical_record: Final[Callable[[dict[str, Any]], bytes]] = partial(orjson.dumps, option=orjson.OPT_SORT_KEYS)


def _is_simple(root: Any) -> bool:
    """Whether the fast serialiser equals RFC 8785 on this value; bounds nesting on the way."""
    level: list[Any] = [root]
    depth = seen = 0
    while level:
        depth += 1
        seen += len(level)
        if depth > MAX_NESTING:
            raise _too_deep()
        if seen > MAX_VALUES:
            raise _too_many()
        below: list[Any] = []
        for value in level:
            kind = type(value)
            if kind is str or value is None or kind is bool:
                continue
            if kind is int:
                if not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
                    return False
            elif kind is dict:
                for key in value:
                    if type(key) is not str or (not key.isascii() and max(key) >= _SURROGATES):
                        return False
                below.extend(value.values())
            elif kind is list:
                below.extend(value)
            else:
                return False
        level = below
    return True


def _write(value: Any, out: list[bytes], depth: int) -> None:
    if depth >= MAX_NESTING:
        raise _too_deep()
    if len(out) > 4 * MAX_VALUES:  # a value takes at most four pieces: comma, key, colon, itself
        raise _too_many()
    kind = type(value)
    if kind is str:
        out.append(orjson.dumps(value))
    elif value is None or kind is bool:
        out.append(b"null" if value is None else b"true" if value else b"false")
    elif kind is int:
        out.append(_digits(value))
    elif kind is float:
        if not math.isfinite(value):
            raise InvalidCall("a number is NaN or infinite, which JSON does not have")
        out.append(rfc8785.dumps(value))
    elif kind is dict:
        _write_object(value, out, depth)
    elif kind is list or kind is tuple:
        out.append(b"[")
        for position, item in enumerate(value):
            if position:
                out.append(b",")
            _write(item, out, depth + 1)
        out.append(b"]")
    else:
        raise InvalidCall(f"a value of type `{kind.__name__}` is not JSON")


def _write_object(value: dict[Any, Any], out: list[bytes], depth: int) -> None:
    for key in value:
        if type(key) is not str:
            raise InvalidCall("an object key is not a string")
    out.append(b"{")
    # RFC 8785, 3.2.3: keys are ordered by their UTF-16 code units.
    for position, key in enumerate(sorted(value, key=lambda name: name.encode("utf-16-be"))):
        if position:
            out.append(b",")
        out.append(orjson.dumps(key))
        out.append(b":")
        _write(value[key], out, depth + 1)
    out.append(b"}")


def _digits(value: int) -> bytes:
    digits = "" if value.bit_length() > _MAX_BITS else str(value)
    if not digits or len(digits.lstrip("-")) > MAX_DIGITS:
        raise InvalidCall(f"an integer has more than {MAX_DIGITS} digits", code="too_large")
    return digits.encode()


def _too_deep() -> InvalidCall:
    return InvalidCall(f"a value is nested deeper than {MAX_NESTING} levels", code="too_deep")


def _too_many() -> InvalidCall:
    return InvalidCall(f"a value holds more than {MAX_VALUES} values", code="too_large")


def stream_result(*, size: int, digest: str | None, broken: bool = False) -> dict[str, Any]:
    """What stands for a streamed result where it is attested or signed: bytes, and the digest of all of them."""
    seen: dict[str, Any] = {"bytes": size, "broken": broken}
    if digest is not None:
        seen["digest"] = digest
    return {"stream": seen}
