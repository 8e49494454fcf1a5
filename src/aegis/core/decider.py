"""The one door: `Gate` (in process) and `Client` (over HTTP) are the same `Decider`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import (
    Decision,
    DeclaredPlan,
    EndedSession,
    OpenedSession,
    ParentSession,
    ResultDecision,
    SaidTurn,
)


class Decider(Protocol):
    """Decides calls before they run and results before a model sees them.

    Every method returns a block decision where the answer cannot be had (store gone, gateway slow,
    rate limited, conflict) and raises `InvalidCall` for misuse alone.
    """

    def decide(self, call: ToolCall) -> Decision: ...

    async def adecide(self, call: ToolCall) -> Decision: ...

    def observe(self, result: ToolResult) -> ResultDecision: ...

    async def aobserve(self, result: ToolResult) -> ResultDecision: ...

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        """The decision that a held call comes to: waits at most `timeout` seconds, never allows on time-out."""
        ...

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision: ...

    def close(self) -> None: ...


class SessionHost(Protocol):
    """Opens sessions on behalf of the host: the task that it names is trusted, and the mission is in force.

    Where the mission names a holder key, possession is proved at the opening, and from then on with
    every call of the session. A turn is what the user said, a plan what the session is about to do. Raises
    `InvalidCall` for a session that is not opened, and `GatewayUnavailable` where nobody can say.
    """

    def open_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        mounts: Sequence[str] = (),
        owner: str = "",
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
    ) -> OpenedSession: ...

    async def aopen_session(
        self,
        session: str,
        *,
        task: str = "",
        mission: str | None = None,
        tools: Sequence[Any] | None = None,
        mounts: Sequence[str] = (),
        owner: str = "",
        turns: Sequence[str] = (),
        parent: ParentSession | None = None,
    ) -> OpenedSession: ...

    def add_turn(
        self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()
    ) -> SaidTurn: ...

    async def aadd_turn(
        self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()
    ) -> SaidTurn: ...

    def declare_plan(self, session: str, plan: dict[str, Any]) -> DeclaredPlan: ...

    async def adeclare_plan(self, session: str, plan: dict[str, Any]) -> DeclaredPlan: ...

    def end_session(self, session: str) -> EndedSession: ...

    async def aend_session(self, session: str) -> EndedSession: ...
