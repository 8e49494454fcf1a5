"""On whose behalf calls are made: the session and the task that the host has opened, per thread and task; and the
permit of the call whose body runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Holding(Generic[T]):
    """A context manager in whose block a variable has a value."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[T], value: T) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token: Token[T] = self._variable.set(self._value)

    def __exit__(self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None) -> None:
        self._variable.reset(self._token)


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A session as the host named it, and what the user asked for."""

    name: str
    task: str | None = None


_current: ContextVar[Session | None] = ContextVar("aegis_session", default=None)


def current_session() -> Session | None:
    """The session of this thread or task, if the host has opened one."""
    return _current.get()


_permit: ContextVar[str | None] = ContextVar("aegis_permit", default=None)


def current_permit() -> str | None:
    """The permit of the call in whose body this code runs, if it was given one."""
    return _permit.get()


def permit_context(permit: str | None) -> Holding[str | None]:
    """Carry a call's permit to what its body calls, past everything that a model sees."""
    return Holding(_permit, permit)


def enter_session(session: Session) -> None:
    """Make every call from here on part of `session`, until the thread or task ends."""
    _current.set(session)


@contextmanager
def session_context(session: Session) -> Iterator[Session]:
    """Make every call of the block part of `session`; sessions nest, the inner one counts."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
