"""One tool call of a run: decided, claimed, run, observed."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import ApprovalRef
from aegis.core.json import parse
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.tool_description import ToolDescription
from aegis.errors import InvalidCall
from aegis.gate import Gate
from aegis.runs.masking import reveal_value
from aegis.runs.records import Claim, Claims, GuardRow
from aegis.runs.state import GuardContext, RunGuard, RunReport, RunView
from aegis.runs.tools import Offer, ToolFailed, ToolServers

# One stage: its guards in order, each shown what the one before it left, until one blocks or holds.

_log = logging.getLogger("aegis.runs")

Ask = Callable[[RunGuard, RunReport, RunView], Awaitable[tuple[bool, Reason]]]
"""Asks a person to let the run go on; answers whether it may, and why not. Does not return while nobody answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """What a stage came to: the view as its guards left it, and one row for every guard that was asked."""

    view: RunView
    outcome: Outcome = Outcome.ALLOW
    reason: Reason = Reason.NONE
    message: str = ""
    rows: tuple[GuardRow, ...] = field(default=())


async def run_stage(guards: Sequence[RunGuard], view: RunView, context: GuardContext, ask: Ask) -> StageResult:
    """Ask the guards in order.

    (1) A guard that raises, or answers anything but a report, blocks.
    (2) `block` ends the stage.
    (3) `require_approval` goes on only after a person said so.
    (4) `sanitize` and labels change what the next guard sees.
    """
    rows: list[GuardRow] = []
    strictest = Outcome.ALLOW
    for guard in guards:
        report = await _report(guard, view, context)
        rows.append(
            {
                "guard": guard.name,
                "outcome": report.outcome.word,
                "rules": sorted(set(report.rules)),
                "reason": report.reason.value,
            }
        )
        if report.outcome is Outcome.BLOCK:
            return _ended(view, report.reason, report.message, rows)
        if report.outcome is Outcome.REQUIRE_APPROVAL:
            allowed, reason = await ask(guard, report, view)
            if not allowed:
                return _ended(view, reason, "nobody let this run go on", rows)
        if report.outcome is Outcome.SANITIZE:
            strictest = Outcome.SANITIZE
        view = replace(
            view,
            messages=view.messages if report.messages is None else report.messages,
            documents=view.documents if report.documents is None else report.documents,
            output=view.output if report.output is None else report.output,
            labels={**view.labels, **report.labels},
            vault={**view.vault, **report.vault},
        )
    return StageResult(view=view, outcome=strictest, rows=tuple(rows))


async def _report(guard: RunGuard, view: RunView, context: GuardContext) -> RunReport:
    try:
        answered: Any = guard.check(view, context)
        if inspect.isawaitable(answered):
            answered = await answered
    except Exception:
        # The text of a guard's own error may hold what it looked at, so it is logged by name alone.
        _log.error("a guard of a run failed", extra={"guard": guard.name})
        return _failed("the guard failed")
    if not isinstance(answered, RunReport):
        return _failed("the guard gave no report")
    changed = (answered.messages, answered.documents, answered.output) != (None, None, None)
    if changed is not (answered.outcome is Outcome.SANITIZE):
        return _failed("the guard changed something without saying so, or said so and changed nothing")
    return answered


def _failed(message: str) -> RunReport:
    return RunReport(outcome=Outcome.BLOCK, reason=Reason.UNAVAILABLE, message=message)


def _ended(view: RunView, reason: Reason, message: str, rows: list[GuardRow]) -> StageResult:
    return StageResult(view=view, outcome=Outcome.BLOCK, reason=reason, message=message, rows=tuple(rows))


UNKNOWN: Final = "the outcome of this call is not known; it was not made again"
_OUTSIDE: Final = frozenset({"network", "external_send"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """What the model hears of a call. `held` is set while a person has to answer; `untrusted` marks a tool's words."""

    content: str = ""
    outcome: str = "allow"
    reason: str = "none"
    untrusted: bool = False
    held: ApprovalRef | None = None


class Executor:
    """Runs the calls of one route's runs."""

    def __init__(self, gate: Gate, claims: Claims, servers: ToolServers, seconds: float) -> None:
        self._gate = gate
        self._claims = claims
        self._servers = servers
        self._seconds = seconds

    async def run(
        self,
        run_id: str,
        principal: Principal,
        offer: Offer,
        wire: dict[str, Any],
        call_id: str,
        vault: dict[str, str],
    ) -> Done:
        """Decide the call `wire` (chat completions' shape) and run it where it may run, at most once."""
        # (1) What the model wrote, strictly read.
        name = wire["function"]["name"]
        tool = offer.by_name.get(name)
        if tool is None:
            return Done(content=f"there is no tool `{name}`", outcome="block", reason="unregistered_tool")
        arguments = _arguments(wire["function"]["arguments"])
        if arguments is None:
            return Done(content="the arguments are not a JSON object", outcome="block", reason="schema_invalid")
        # (2) What was claimed before is not run again, whatever became of it.
        claim = await asyncio.to_thread(self._claims.find, run_id, call_id)
        if claim is not None:
            return await self._seen(principal, claim)
        # (3) Placeholders are resolved for tools that stay inside, never for those that send something out.
        if vault and not self._leaves(tool, arguments):
            arguments = reveal_value(arguments, vault)
        # (4) The decision; a repeat of this id gets the current state of the call.
        call = ToolCall(tool=tool.name, server=tool.server, arguments=arguments, session=run_id, call_id=call_id)
        decision = await self._gate.adecide(call, principal=principal)
        if decision.outcome is Outcome.REQUIRE_APPROVAL and decision.approval is not None:
            return Done(held=decision.approval)
        if not decision.allowed:
            return Done(content=decision.message, outcome=decision.outcome.word, reason=decision.reason.value)
        # (5) The claim, then the tool.
        if not await asyncio.to_thread(self._claims.take, run_id, call_id, decision.decision_id):
            return Done(content=UNKNOWN, outcome="block", reason="unavailable")
        result = await self._call(tool, decision.arguments if decision.arguments is not None else arguments)
        await asyncio.to_thread(self._claims.finish, run_id, call_id, decision.decision_id, result)
        return await self._seen(principal, Claim(decision_id=decision.decision_id, ended=True, result=result))

    async def _seen(self, principal: Principal, claim: Claim) -> Done:
        """(6) The result, judged before the model sees it."""
        if not claim.ended:
            return Done(content=UNKNOWN, outcome="block", reason="unavailable")
        seen = await self._gate.aobserve(
            ToolResult(decision_id=claim.decision_id, result=claim.result), principal=principal
        )
        if not seen.allowed:
            return Done(content=seen.message, outcome="block", reason=seen.reason.value)
        given = seen.result if seen.outcome is Outcome.SANITIZE else claim.result
        return Done(content=given if isinstance(given, str) else orjson.dumps(given).decode(), untrusted=True)

    def _leaves(self, tool: ToolDescription, arguments: dict[str, Any]) -> bool:
        """Whether the call could carry its arguments out of this deployment; one that is not known could."""
        effects = self._gate.parts.policy.current.effects(tool.server, tool.name, arguments)
        return not effects or not effects.isdisjoint(_OUTSIDE)

    async def _call(self, tool: ToolDescription, arguments: dict[str, Any]) -> Any:
        try:
            return await self._servers.call(tool.server or "", tool.name, arguments, self._seconds)
        except ToolFailed as error:
            return {"error": str(error)}


def _arguments(text: str) -> dict[str, Any] | None:
    """What the model wrote as arguments, strictly read; `None` where it is not a JSON object."""
    try:
        value = parse(text.encode("utf-8", "replace") or b"{}")
    except InvalidCall:
        return None
    return value if isinstance(value, dict) else None
