"""Asks a client in either of its two ways; tests take `mode` as a parameter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import pytest

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decider import Decider
from aegis.core.decision import Decision, ResultDecision
from support.raw_server import Received, answer

CALL = ToolCall(tool="send_email", arguments={"to": "a@example.com", "amount": 2**60})

Mode = Literal["sync", "async"]
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])


def decide(decider: Decider, call: ToolCall, mode: Mode) -> Decision:
    return decider.decide(call) if mode == "sync" else asyncio.run(decider.adecide(call))


def observe(decider: Decider, result: ToolResult, mode: Mode) -> ResultDecision:
    return decider.observe(result) if mode == "sync" else asyncio.run(decider.aobserve(result))


def wait(decider: Decider, call: ToolCall, held: Decision, timeout: float | None, mode: Mode) -> Decision:
    if mode == "sync":
        return decider.wait(call, held, timeout)
    return asyncio.run(decider.await_decision(call, held, timeout))


def said(body: Callable[[dict[str, Any]], Any], status: int = 200, *headers: str) -> Callable[[Received], bytes]:
    """A handler that answers every request with what `body` makes of its JSON."""
    return lambda request: answer(status, body(request.json), *headers)
