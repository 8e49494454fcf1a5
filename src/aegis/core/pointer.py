"""JSON pointers (RFC 6901): building them, reading and replacing the value one points at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aegis.core.finding import Patch


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
    """The value at `pointer`; raises `LookupError` where there is none."""
    value = root
    for token in tokens(pointer):
        value = _step(value, token)
    return value


def apply_patches(root: Any, patches: Sequence[Patch]) -> Any:
    """A copy of `root` with `patches` applied in order; containers off the patched paths are shared.

    Raises `LookupError` for a patch whose place does not exist.
    """
    for patch in patches:
        root = _replace(root, tokens(patch.path), patch.value)
    return root


def _replace(value: Any, path: tuple[str, ...], new: Any) -> Any:
    if not path:
        return new
    head, rest = path[0], path[1:]
    inner = _replace(_step(value, head), rest, new)
    if isinstance(value, dict):
        return {**value, head: inner}
    return [inner if index == int(head) else item for index, item in enumerate(value)]


def _step(value: Any, token: str) -> Any:
    if isinstance(value, dict):
        return value[token]
    if isinstance(value, list) and token.isascii() and token.isdigit():
        return value[int(token)]
    raise LookupError("the pointer leads nowhere")
