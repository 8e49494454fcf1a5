"""JSON pointers (RFC 6901): building them, reading and replacing the value one points at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from aegis.core.finding import Patch

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
