"""A session as the host opens it: what is called in it belongs together and serves one task."""

from __future__ import annotations

from contextlib import AbstractContextManager

from aegis.adapters.context import Session, session_context
from aegis.core.call import ToolCall, check_call


def session(name: str, task: str | None = None) -> AbstractContextManager[Session]:
    """Make every tool call of the block part of the session `name`.

    Args:
        name: the session's name; calls with the same name belong together.
        task: what the user asked for, in the host's words and never in the model's.

    Raises:
        InvalidCall: the name is empty or too long, or the task is too long.
    """
    check_call(ToolCall(tool="session", session=name, task=task))
    return session_context(Session(name=name, task=task))
