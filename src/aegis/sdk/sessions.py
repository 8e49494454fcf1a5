"""A session as the host opens it: what is called in it belongs together and serves one task."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from msgspec import Struct

from aegis.core.call import ToolCall, check_call
from aegis.core.decision import (
    DeclaredPlan,
    EndedSession,
    ParentSession,
    SaidTurn,
)
from aegis.enforce.scope import Session, session_context
from aegis.sdk.runtime import current_runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class HostedSession(Session):
    """A session of this process' runtime, as the block that opened it holds it."""

    def turn(self, text: str, *, turn: int | None = None, documents: Sequence[str] = ()) -> SaidTurn:
        """Say what the user said now: trusted words, in the host's code and never from arguments or results.

        Args:
            text: the user's words, without documents and tool results.
            turn: its number, where the host counts; the same number with the same words is recorded once.
            documents: what the user pasted beside them: they count as read and untrusted.

        Raises `InvalidCall` where it is refused, `GatewayUnavailable` or `StoreError` where it cannot be recorded.
        """
        return current_runtime().host.add_turn(self.name, text, turn=turn, documents=documents)

    async def aturn(self, text: str, *, turn: int | None = None, documents: Sequence[str] = ()) -> SaidTurn:
        """`turn` for event loops."""
        return await current_runtime().host.aadd_turn(self.name, text, turn=turn, documents=documents)

    def plan(self, *steps: dict[str, Any], ordered: bool = False) -> DeclaredPlan:
        """Declare what the session is about to do: calls outside of it are held for a person from then on.

        Args:
            steps: each a `tool` (a selector), and `arguments`, `effects` and `times` where they are known.
            ordered: whether each step follows those before it.

        A plan that lets more through than the one before waits for a person: `approval` of the answer says where.
        Raises `InvalidCall` where it is refused, `GatewayUnavailable` or `StoreError` where it cannot be recorded.
        """
        return current_runtime().host.declare_plan(self.name, {"steps": list(steps), "ordered": ordered})

    async def aplan(self, *steps: dict[str, Any], ordered: bool = False) -> DeclaredPlan:
        """`plan` for event loops."""
        return await current_runtime().host.adeclare_plan(self.name, {"steps": list(steps), "ordered": ordered})

    def end(self) -> EndedSession:
        """End the session for good, which leaving its block does not: nothing is said or called in it any more.

        Raises `InvalidCall` for a session of which nothing is on record, `GatewayUnavailable` or `StoreError` where the
        end cannot be recorded.
        """
        return current_runtime().host.end_session(self.name)

    async def aend(self) -> EndedSession:
        """`end` for event loops."""
        return await current_runtime().host.aend_session(self.name)


class SessionWords(Struct, frozen=True, kw_only=True):
    """What the host says of a session when it opens it."""

    mission: str | None
    tools: Sequence[Any] | None
    mounts: Sequence[str]
    owner: str
    turns: Sequence[str]
    parent: ParentSession | None

    @property
    def any(self) -> bool:
        """Whether there is anything that the decider has to be told."""
        named = self.mission is not None or self.parent is not None
        return named or bool(self.mounts or self.tools or self.owner or self.turns)


class SessionScope(AbstractContextManager[HostedSession, None], AbstractAsyncContextManager[HostedSession, None]):
    """One session as a block, `with` or `async with`; it is opened at the decider when the block begins."""

    def __init__(self, session: HostedSession, words: SessionWords):
        self._session = session
        self._words = words
        self._block: AbstractContextManager[Session] | None = None

    def __enter__(self) -> HostedSession:
        if self._is_told:
            words = self._words
            current_runtime().host.open_session(
                self._session.name,
                task=self._session.task or "",
                mission=words.mission,
                tools=words.tools,
                mounts=words.mounts,
                owner=words.owner,
                turns=words.turns,
                parent=words.parent,
            )
        return self._begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            block, self._block = self._block, None
            block.__exit__(kind, error, trace)

    async def __aenter__(self) -> HostedSession:
        if self._is_told:
            words = self._words
            await current_runtime().host.aopen_session(
                self._session.name,
                task=self._session.task or "",
                mission=words.mission,
                tools=words.tools,
                mounts=words.mounts,
                owner=words.owner,
                turns=words.turns,
                parent=words.parent,
            )
        return self._begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    @property
    def _is_told(self) -> bool:
        """Whether there is anything about the session that the decider has to be told."""
        return bool(self._session.task) or self._words.any

    def _begin(self) -> HostedSession:
        self._block = session_context(self._session)
        self._block.__enter__()
        return self._session


def session(
    name: str,
    task: str | None = None,
    *,
    mission: str | None = None,
    tools: Sequence[Any] | None = None,
    mounts: Sequence[str] = (),
    owner: str = "",
    turns: Sequence[str] = (),
    parent: str | None = None,
    parent_call: str | None = None,
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
        owner: the person for whom the session runs.
        turns: what the user said after the task, so far; `Session.turn` says what comes later.
        parent: the session that this one was opened from, of the same agent's credential: what it read counts as
            read here, and its user's words are the words here.
        parent_call: the call of the parent that opened this session.

    Raises:
        InvalidCall: the name is empty or too long, or the task is too long; at the beginning of the
            block, that the session was refused.
        GatewayUnavailable, StoreError: at the beginning of the block, that it could not be opened.
    """
    check_call(ToolCall(tool="session", session=name, task=task))
    opened_from = None if parent is None else ParentSession(session=parent, call_id=parent_call)
    words = SessionWords(mission=mission, tools=tools, mounts=mounts, owner=owner, turns=turns, parent=opened_from)
    return SessionScope(HostedSession(name=name, task=task), words)
