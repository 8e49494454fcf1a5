"""A session as the host opens it: what is called in it belongs together and serves one task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from types import TracebackType
from typing import Any

from aegis.core.call import ToolCall, check_call
from aegis.enforce.context import Session, session_context
from aegis.sdk.runtime import current_runtime


class SessionScope(AbstractContextManager[Session, None], AbstractAsyncContextManager[Session, None]):
    """One session as a block, `with` or `async with`; it is opened at the decider when the block begins."""

    def __init__(self, session: Session, mission: str | None, tools: Sequence[Any] | None, mounts: Sequence[str]):
        self._session = session
        self._mission = mission
        self._tools = tools
        self._mounts = mounts
        self._block: AbstractContextManager[Session] | None = None

    def __enter__(self) -> Session:
        if self._is_told:
            current_runtime().host.open_session(
                self._session.name,
                task=self._session.task or "",
                mission=self._mission,
                tools=self._tools,
                mounts=self._mounts,
            )
        return self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            block, self._block = self._block, None
            block.__exit__(kind, error, trace)

    async def __aenter__(self) -> Session:
        if self._is_told:
            await current_runtime().host.aopen_session(
                self._session.name,
                task=self._session.task or "",
                mission=self._mission,
                tools=self._tools,
                mounts=self._mounts,
            )
        return self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def _is_told(self) -> bool:
        """Whether there is anything about the session that the decider has to be told."""
        return bool(self._session.task or self._mounts or self._tools) or self._mission is not None

    def _begin(self) -> Session:
        self._block = session_context(self._session)
        return self._block.__enter__()


def session(
    name: str,
    task: str | None = None,
    *,
    mission: str | None = None,
    tools: Sequence[Any] | None = None,
    mounts: Sequence[str] = (),
) -> SessionScope:
    """Make every tool call of the block part of the session `name`.

    With a task, tools, mounts or a mission the session is opened at the decider when the block begins, so that the
    task is trusted and the mission in force; where the mission names a holder key, possession is
    proved then and with every call. The same words again go on with the same session.

    Args:
        name: the session's name; calls with the same name belong together.
        task: what the user asked for, in the host's words and never in the model's.
        mission: the id of the mission that the session serves.
        tools: what the host offers the agent, names or whole definitions.
        mounts: the folders that the agent works in; previews and judges look at them, on the gateway's machine.

    Raises:
        InvalidCall: the name is empty or too long, or the task is too long; at the beginning of the
            block, that the session was refused.
        GatewayUnavailable, StoreError: at the beginning of the block, that it could not be opened.
    """
    check_call(ToolCall(tool="session", session=name, task=task))
    return SessionScope(Session(name=name, task=task), mission, tools, mounts)
