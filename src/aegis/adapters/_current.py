"""The model's call that a framework is executing, for a seam underneath that is not told its id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_call: ContextVar[tuple[str, str] | None] = ContextVar("aegis_current_call", default=None)


@contextmanager
def executing(tool: str, call_id: Any) -> Iterator[None]:
    """The block executes this call of a model."""
    token = _call.set((tool, call_id if isinstance(call_id, str) else ""))
    try:
        yield
    finally:
        _call.reset(token)


def take_call_id(tool: str) -> str:
    """The id of the call that is executed, if it is one of this tool; it stands for one execution."""
    found = _call.get()
    if found is None or found[0] != tool:
        return ""
    _call.set(None)
    return found[1]
