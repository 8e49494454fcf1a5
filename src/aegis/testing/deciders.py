"""A decider whose answers a test scripts by tool; it implements the whole protocol and keeps what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from aegis.core.call import ToolCall, ToolResult, check_call
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import (
    ApprovalRef,
    Decision,
    OpenedSession,
    ParentSession,
    ReceiptRef,
    ResultDecision,
    SaidTurn,
)
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason, Risk, Verdict

Rule = Callable[[ToolCall], Decision]


@dataclass
class ScriptedDecider:
    """Allows what no rule speaks about. `resolve` says what a held call comes to; results pass `inspect`."""

    rules: dict[str, Rule] = field(default_factory=dict)
    resolve: Rule | None = None
    inspect: Callable[[Any], ResultDecision] = field(default=lambda value: seen(value))
    decided: list[ToolCall] = field(default_factory=list)
    observed: list[ToolResult] = field(default_factory=list)
    waited: list[ToolCall] = field(default_factory=list)
    opened: list[tuple[str, str, str | None]] = field(default_factory=list)
    turns: list[tuple[str, str, int | None, tuple[str, ...]]] = field(default_factory=list)
    closed: bool = False
    _known: dict[tuple[str | None, str], Decision] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def decide(self, call: ToolCall) -> Decision:
        check_call(call)
        key = (call.session, call.call_id or "")
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                same = known.request_digest == digest_of(call)
                return known if same else blocked(call, Reason.CONFLICT)
            self.decided.append(call)
            decision = self.rules.get(call.tool, allowed)(call)
            self._known[key] = decision
            return decision

    async def adecide(self, call: ToolCall) -> Decision:
        return self.decide(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        with self._lock:
            self.observed.append(result)
        return self.inspect(result.result)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        return self.observe(result)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        self.waited.append(call)
        if self.resolve is None:
            return decision
        resolved = self.resolve(call)
        if resolved.allowed:  # as a gate does: an approval is used once
            self._known[call.session, call.call_id or ""] = blocked(call, Reason.CONFLICT)
        return resolved

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        return self.wait(call, decision, timeout)

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
    ) -> OpenedSession:
        self.opened.append((session, task, mission))
        for text in turns:
            self.add_turn(session, text)
        return OpenedSession(session=session, receipt=ReceiptRef(id="r", index=0, leaf_hash="h"), fresh=True)

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
    ) -> OpenedSession:
        return self.open_session(
            session, task=task, mission=mission, tools=tools, mounts=mounts, owner=owner, turns=turns, parent=parent
        )

    def add_turn(self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()) -> SaidTurn:
        self.turns.append((session, text, turn, tuple(documents)))
        receipt = ReceiptRef(id="t", index=len(self.turns), leaf_hash="h")
        return SaidTurn(session=session, turn=turn or len(self.turns), receipt=receipt, fresh=True)

    async def aadd_turn(
        self, session: str, text: str, *, turn: int | None = None, documents: Sequence[str] = ()
    ) -> SaidTurn:
        return self.add_turn(session, text, turn=turn, documents=documents)

    def close(self) -> None:
        self.closed = True


def digest_of(call: ToolCall, arguments: dict[str, Any] | None = None) -> str:
    chosen = call.arguments if arguments is None else arguments
    return call_digest(server=call.server, tool=call.tool, arguments=canonical(chosen))


def allowed(call: ToolCall) -> Decision:
    """The decision that allows a call as it is."""
    return Decision(
        outcome=Outcome.ALLOW,
        verdict=Verdict.COMPLIANT,
        risk=Risk.LOW,
        reason=Reason.NONE,
        message=message_for(Outcome.ALLOW, Reason.NONE),
        decision_id=f"d-{call.call_id}",
        call_id=call.call_id or "",
        request_digest=digest_of(call),
        call_digest=digest_of(call),
        policy_digest="sha-256:p",
        salt="s",
        receipt=ReceiptRef(id="r", index=0, leaf_hash="h"),
    )


def blocked(call: ToolCall, reason: Reason = Reason.POLICY_DENIED) -> Decision:
    """The decision that blocks a call."""
    return replace(
        allowed(call),
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
    )


def sanitized(**arguments: Any) -> Rule:
    """The rule that lets a call run with other arguments."""
    return lambda call: replace(
        allowed(call), outcome=Outcome.SANITIZE, arguments=arguments, call_digest=digest_of(call, arguments)
    )


def held(call: ToolCall) -> Decision:
    """The decision that holds a call for an approval."""
    return replace(
        blocked(call, Reason.APPROVAL_REQUIRED),
        outcome=Outcome.REQUIRE_APPROVAL,
        approval=ApprovalRef(id="ap", expires_at="2030-01-01T00:00:00Z"),
    )


def seen(value: Any) -> ResultDecision:
    """The answer that lets a result be seen as it is."""
    return ResultDecision(outcome=Outcome.ALLOW, verdict=Verdict.COMPLIANT, reason=Reason.NONE, message="ok")


def changed(value: Any) -> ResultDecision:
    """The answer that lets something else be seen."""
    return ResultDecision(
        outcome=Outcome.SANITIZE, verdict=Verdict.VIOLATION, reason=Reason.SENSITIVE_DATA, message="m", result=value
    )


def withheld(value: Any) -> ResultDecision:
    """The answer that lets nothing be seen."""
    return ResultDecision(
        outcome=Outcome.BLOCK, verdict=Verdict.VIOLATION, reason=Reason.ATTACK_DETECTED, message="injected"
    )
