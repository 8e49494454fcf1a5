"""A gate that acts for one principal: the `Decider` of a gateway's request."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Protocol

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ResultDecision
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.gate.gate import Gate


class Decide(Protocol):
    """Decides one call for a principal."""

    def __call__(self, call: ToolCall, *, principal: Principal) -> Awaitable[Decision]: ...


class Acting:
    """`gate` with every question put for `principal`; `decide` is how the gateway decides, traced or not.

    A client may shorten an old result to save room, so another result of the same call is judged for itself.
    """

    def __init__(self, gate: Gate, principal: Principal, decide: Decide):
        self._gate = gate
        self._principal = principal
        self._decide = decide

    def decide(self, call: ToolCall) -> Decision:
        return self._gate.decide(call, principal=self._principal)

    async def adecide(self, call: ToolCall) -> Decision:
        return await self._decide(call, principal=self._principal)

    def observe(self, result: ToolResult) -> ResultDecision:
        return self._gate.observe(result, principal=self._principal)

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        try:
            return await self._gate.aobserve(result, principal=self._principal)
        except InvalidCall as error:
            if error.code != "conflict":
                raise
        return await self._gate.aobserve(replace(result, further=True), principal=self._principal)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return self._gate.wait(call, decision, timeout, principal=self._principal)

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        return await self._gate.await_decision(call, decision, timeout, principal=self._principal)

    def close(self) -> None:
        """The gate belongs to the gateway, and stays open."""
