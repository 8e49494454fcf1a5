"""Asking the person at the client about a held call, by the protocol's own elicitation.

Who answers must hold an approver's key: the gate checks, as everywhere, that it is not the requester who approves.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import orjson

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decider import Decider
from aegis.core.decision import ApprovalRef, Decision, ResultDecision
from aegis.proxies.mcp.messages import Message

Elicit = Callable[[Message], Awaitable[Message | None]]
Choice = Literal["approve", "deny"]
Resolve = Callable[[str, Choice], Awaitable[None]]

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
        if decision.approval is None:
            return await self._inner.await_decision(call, decision, timeout)
        asking = asyncio.ensure_future(self._ask(call, decision.approval))
        try:
            return await self._inner.await_decision(call, decision, timeout)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    def close(self) -> None:
        self._inner.close()

    async def _ask(self, call: ToolCall, approval: ApprovalRef) -> None:
        arguments = orjson.dumps(call.arguments, option=orjson.OPT_INDENT_2).decode()
        text = f"`{call.tool}` of `{call.server}` has to be approved ({approval.id}). It would run with:\n{arguments}"
        answer = await self._elicit({"message": text, "requestedSchema": _SCHEMA})
        if answer is None:
            return
        content = answer.get("content")
        decision = content.get("decision") if isinstance(content, dict) else None
        if answer.get("action") == "accept" and (decision == "approve" or decision == "deny"):
            await self._resolve(approval.id, decision)
        elif answer.get("action") == "decline":
            await self._resolve(approval.id, "deny")
