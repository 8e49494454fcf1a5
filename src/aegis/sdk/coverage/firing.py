"""Fires the canaries: hooked to a decider that refuses all, with a witness in place of every body."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision, ResultDecision
from aegis.core.outcome import Outcome, Reason, Risk, Verdict, message_for
from aegis.enforce.enforcement import Enforcer
from aegis.enforce.memory import Memory
from aegis.enforce.patching import Patches
from aegis.enforce.witness import trapping
from aegis.errors import CallRefused
from aegis.sdk.coverage.canaries import CANARIES, FUNCTION_CANARIES, Canary, Covered, State
from aegis.sdk.coverage.words import PATH, Listening, is_heard
from aegis.sdk.hooking import installed_adapters

_log: Final = logging.getLogger("aegis")

ALL_CANARIES: Final = CANARIES | FUNCTION_CANARIES


class Refusing:
    """A decider that refuses every call and counts what it was asked; it records nothing."""

    outcome = Outcome.BLOCK
    reason = Reason.POLICY_DENIED

    def __init__(self) -> None:
        self.asked = 0

    def decide(self, call: ToolCall) -> Decision:
        self.asked += 1
        digest = call_digest(server=call.server, tool=call.tool, arguments=canonical(call.arguments))
        return Decision(
            outcome=self.outcome,
            verdict=Verdict.COMPLIANT if self.outcome is Outcome.ALLOW else Verdict.VIOLATION,
            risk=Risk.LOW,
            reason=self.reason,
            message=message_for(self.outcome, self.reason),
            decision_id=f"canary-{self.asked}",
            call_id=call.call_id or "",
            request_digest=digest,
            call_digest=digest,
            policy_digest="",
            salt="",
        )

    async def adecide(self, call: ToolCall) -> Decision:
        return self.decide(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        return ResultDecision(
            outcome=Outcome.ALLOW,
            verdict=Verdict.COMPLIANT,
            reason=Reason.NONE,
            message=message_for(Outcome.ALLOW, Reason.NONE),
        )

    async def aobserve(self, result: ToolResult) -> ResultDecision:
        return self.observe(result)

    def wait(self, call: ToolCall, decision: Decision, timeout: float | None = None) -> Decision:
        return decision

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        return decision

    def close(self) -> None:
        """Hold nothing."""


class Allowing(Refusing):
    """A decider for tests of a host's own tools: it allows every call."""

    outcome = Outcome.ALLOW
    reason = Reason.NONE


def coverage(modules: Sequence[str] = ()) -> list[Covered]:
    """Fire a canary over every path of every tool that the modules register; no body runs.

    Raises `ImportError` where a module cannot be imported, and `UnhookedFramework`.
    """
    decider, patches = Refusing(), Patches()
    try:
        # All of them, and before the modules, as in a program that begins with `auto()`: what a module then does to
        # its tools is not hooked over again.
        hooked = hook_installed(Enforcer(decider, host=Listening()), patches, bar=True)
        for module in modules:
            import_module(module)
        fired = [
            _fired(hooked[name], canary, decider)
            for name, canaries in ALL_CANARIES.items()
            if name in hooked
            for canary in canaries()
        ]
        return [*fired, *(_heard(name, framework) for name, framework in hooked.items())]
    finally:
        patches.undo()


def _heard(name: str, framework: str) -> Covered:
    """Whether the user's words arrive over a framework; where they do not, the host says them."""
    heard = is_heard(name)
    state: State = "host says them" if heard is None else "covered" if heard else "UNCOVERED"
    return Covered(framework=framework, tool="", path=PATH, state=state)


def hook_installed(enforcer: Enforcer, patches: Patches, *, bar: bool) -> dict[str, str]:
    """Hook every framework that is installed; gives their distributions by the name of the adapter's module.

    Raises `UnhookedFramework`.
    """
    hooked: dict[str, str] = {}
    for adapter in installed_adapters():
        adapter.module.hook(enforcer, Memory(), patches, bar=bar)
        hooked[adapter.name] = adapter.module.DISTRIBUTION
    return hooked


def _fired(framework: str, canary: Canary, decider: Refusing) -> Covered:
    before = decider.asked
    with trapping() as caught, canary.body():
        try:
            canary.fire()
        except CallRefused:
            _log.debug("a canary was refused, as it should be")
        except Exception as error:
            _log.info("a canary of `%s` ended with %s", canary.tool, type(error).__name__)
    state: State = "UNCOVERED" if caught else "covered" if decider.asked > before else "not reached"
    return Covered(framework=framework, tool=canary.tool, path=canary.path, state=state)
