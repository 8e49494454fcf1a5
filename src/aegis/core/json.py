"""JSON in, strictly or as the type of a document, and JSON pointers (RFC 6901)."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final, TypeVar

import msgspec
import orjson

from aegis.core.finding import Patch
from aegis.errors import InvalidCall

T = TypeVar("T")

# JSON in, strictly: what two parsers could read differently is refused.
#
# Refused: duplicate keys, NaN and infinities, numbers beyond a double, lone surrogates, invalid UTF-8, a byte order
# mark, trailing data. Large integers keep their exact digits.

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


# Values and stored bytes as the types of documents.
#
# How a type is read is worked out when it is first read, and then kept with it. Two threads that do so at once end the
# process (msgspec 0.22), so each type is learnt by one thread alone.

_LEARNING: Final = threading.Lock()
_decoders: Final[dict[object, msgspec.json.Decoder[Any]]] = {}


def convert(value: object, to: type[T], *, builtin_types: tuple[type, ...] = ()) -> T:
    """Read plain values as `to`; raises `msgspec.ValidationError`. Those of `builtin_types` may stand among them."""
    _learn(to)
    return msgspec.convert(value, to, builtin_types=builtin_types)


def decode(body: bytes | str, to: type[T]) -> T:
    """Read JSON of our own as `to`; raises `msgspec.DecodeError`."""
    found: T = _learn(to).decode(body)
    return found


def unpack(body: bytes, to: type[T]) -> T:
    """Read MessagePack of our own as `to`; raises `msgspec.DecodeError`."""
    _learn(to)
    return msgspec.msgpack.decode(body, type=to)


def _learn(to: object) -> msgspec.json.Decoder[Any]:
    known = _decoders.get(to)
    if known is None:
        with _LEARNING:
            known = _decoders[to] = msgspec.json.Decoder(to)
    return known


MAX_INDEX_DIGITS: Final = 9  # no array has more items, and turning digits into a number is quadratic


def escape(token: str) -> str:
    """One reference token, escaped."""
    return token.replace("~", "~0").replace("/", "~1")


def tokens(pointer: str) -> tuple[str, ...]:
    """The unescaped tokens of a pointer; raises `ValueError` where it is neither empty nor starts with `/`."""
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise ValueError("a JSON pointer starts with `/`")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def resolve(root: Any, pointer: str) -> Any:
    """The value at `pointer`; raises `LookupError` where there is none, `ValueError` for no pointer."""
    value = root
    for token in tokens(pointer):
        value = _step(value, token)
    return value


def apply_patches(root: Any, patches: Sequence[Patch]) -> Any:
    """A copy of `root` with `patches` applied in order; containers off the patched paths are shared.

    Every container is copied at most once, so that ten thousand patches in one list stay linear.
    Raises `LookupError` for a patch whose place does not exist, `ValueError` for no pointer.
    """
    copies: dict[int, Any] = {}  # by identity; holding them keeps an identity from being given anew
    for patch in patches:
        path = tokens(patch.path)
        if not path:
            root = patch.value
            continue
        value = root = _own(root, copies)
        for token in path[:-1]:
            inner = _own(_step(value, token), copies)
            value[_place(value, token)] = inner
            value = inner
        _step(value, path[-1])
        value[_place(value, path[-1])] = patch.value
    return root


def _own(value: Any, copies: dict[int, Any]) -> Any:
    """`value` where it is a copy of ours already, else a new copy of it; leaves stay what they are."""
    if id(value) in copies or not isinstance(value, dict | list):
        return value
    copy = value.copy()
    copies[id(copy)] = copy
    return copy


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict | list):
        return value[_place(value, token)]
    raise LookupError("the pointer leads nowhere")


def _place(value: Any, key: str) -> Any:
    """What to index `value` with. RFC 6901, 4: an array index is digits without leading zeros."""
    if isinstance(value, dict):
        return key
    if key.isascii() and key.isdigit() and len(key) <= MAX_INDEX_DIGITS and (key == "0" or key[0] != "0"):
        return int(key)
    raise LookupError("the pointer leads nowhere")
