"""On whose behalf calls are made: the session and the task that the host has opened, per thread and task."""

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


@contextmanager
def session_context(session: Session) -> Iterator[Session]:
    """Make every call of the block part of `session`; sessions nest, the inner one counts."""
    token = _current.set(session)
    try:
        yield session
    finally:
        _current.reset(token)
