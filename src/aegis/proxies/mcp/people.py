"""Asking the person at the client about a held call, by the protocol's own elicitation.

Who answers must hold an approver's key: the gate checks, as everywhere, that it is not the requester who approves. The
answer carries the digests of what was shown, so it counts for no other call and under no other policy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import canonical
from aegis.core.decider import Decider
from aegis.core.decision import ApprovalRef, Decision, ResultDecision
from aegis.core.digest import call_digest
from aegis.core.printable import json_text, visible
from aegis.proxies.mcp.messages import Message

REASON: Final = "answered at the MCP client"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a person at a client said about an approval, bound to the digests of what they were shown."""

    approval: str
    decision: Literal["approve", "deny"]
    call_digest: str
    policy_digest: str

    def to_wire(self) -> dict[str, str]:
        """The body of the answer as the HTTP API takes it."""
        return {
            "decision": self.decision,
            "reason": REASON,
            "call_digest": self.call_digest,
            "policy_digest": self.policy_digest,
        }


Elicit = Callable[[Message], Awaitable[Message | None]]
Resolve = Callable[[Said], Awaitable[None]]

_SCHEMA: Final[Message] = {
    "type": "object",
    "properties": {"decision": {"type": "string", "enum": ["approve", "deny"], "title": "May this call run?"}},
    "required": ["decision"],
}


class AskingDecider:
    """A decider that, while a held call waits, asks the person at the client; everything else is `inner`'s.

    `elicit` puts an elicitation to the client (`None` where it cannot), `resolve` answers an approval with the
    approver's key.
    """

    def __init__(self, inner: Decider, elicit: Elicit, resolve: Resolve):
        self._inner = inner
        self._elicit = elicit
        self._resolve = resolve

    def decide(self, call: ToolCall) -> Decision:
        return self._inner.decide(call)

    async def adecide(self, call: ToolCall) -> Decision:
        return await self._inner.adecide(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        return self._inner.observe(result)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        return await self._inner.aobserve(result)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return self._inner.wait(call, decision, timeout)

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        # A call that would run with other arguments than these is for people who are shown those.
        if decision.approval is None or digest_of(call) != decision.call_digest:
            return await self._inner.await_decision(call, decision, timeout)
        asking = asyncio.ensure_future(self._ask(call, decision, decision.approval))
        try:
            return await self._inner.await_decision(call, decision, timeout)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    def close(self) -> None:
        self._inner.close()

    async def _ask(self, call: ToolCall, decision: Decision, approval: ApprovalRef) -> None:
        named = visible(f"`{call.tool}` of `{call.server}`")
        arguments = json_text(call.arguments, pretty=True)
        text = f"{named} has to be approved ({approval.id}). It would run with:\n{arguments}"
        answer = await self._elicit({"message": text, "requestedSchema": _SCHEMA})
        if answer is None:
            return
        content = answer.get("content")
        chosen = content.get("decision") if isinstance(content, dict) else None
        if answer.get("action") == "decline":
            chosen = "deny"
        elif answer.get("action") != "accept":
            return
        if chosen == "approve" or chosen == "deny":
            await self._resolve(
                Said(
                    approval=approval.id,
                    decision=chosen,
                    call_digest=decision.call_digest,
                    policy_digest=decision.policy_digest,
                )
            )


def digest_of(call: ToolCall) -> str:
    """The digest of exactly this call."""
    return call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))
