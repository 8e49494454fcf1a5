"""On whose behalf calls are made: the session and the task that the host has opened, per thread and task; and the
permit of the call whose body runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


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


@contextmanager
def permit_context(permit: str | None) -> Iterator[None]:
    """Carry a call's permit to what its body calls, past everything that a model sees."""
    token = _permit.set(permit)
    try:
        yield
    finally:
        _permit.reset(token)


@contextmanager
def session_context(session: Session) -> Iterator[Session]:
    """Make every call of the block part of `session`; sessions nest, the inner one counts."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
