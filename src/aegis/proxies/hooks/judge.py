"""One event, judged: before a tool runs its call is decided, after it ran its result is observed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, Final

from aegis.adapters._enforce import Enforcer, Observed
from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import canonical
from aegis.core.decider import Decider
from aegis.core.decision import Decision
from aegis.core.digest import call_digest
from aegis.core.outcome import Outcome
from aegis.proxies.hooks.answers import HookAnswer, blanked, passed, patched, refused, replaced
from aegis.proxies.hooks.event import HookEvent
from aegis.proxies.hooks.state import HookState

_UNSEEN: Final = "the result was withheld: nobody decided the call that it belongs to"


class Judge:
    """Judges events for one decider; a held call waits until `wait_until` of the monotonic clock, in seconds."""

    def __init__(self, decider: Decider, state: HookState, *, wait_until: float):
        self._decider = decider
        self._state = state
        self._wait_until = wait_until

    def answer(self, event: HookEvent) -> HookAnswer:
        """What the host is told."""
        if event.phase == "after":
            asked = self._result(event)
            if isinstance(asked, HookAnswer):
                return asked
            enforcer = Enforcer(self._decider)
            return _observed(event, enforcer.run(enforcer.observe([asked])))
        call, held = self._call(event)
        decision = self._decider.decide(call)
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            held = self._hold(event, call, held=held)
            decision = self._decider.wait(call, decision, self._patience())
        return self._settled(event, decision, held=held)

    async def aanswer(self, event: HookEvent) -> HookAnswer:
        """The async twin of `answer`; cancelling it leaves a held call held."""
        if event.phase == "after":
            asked = self._result(event)
            if isinstance(asked, HookAnswer):
                return asked
            enforcer = Enforcer(self._decider)
            return _observed(event, await enforcer.arun(enforcer.observe([asked])))
        call, held = self._call(event)
        decision = await self._decider.adecide(call)
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            held = self._hold(event, call, held=held)
            decision = await self._decider.await_decision(call, decision, self._patience())
        return self._settled(event, decision, held=held)

    def _call(self, event: HookEvent) -> tuple[ToolCall, bool]:
        """The call, and whether a person was asked about it: then it keeps its id, so that the answer counts."""
        held = self._state.find("held", event.again)
        call_id = held["call_id"] if held is not None else event.call_id or secrets.token_hex(16)
        call = ToolCall(
            tool=event.tool,
            server=event.server,
            arguments=event.arguments,
            call_id=call_id,
            session=event.session or None,
        )
        return call, held is not None

    def _hold(self, event: HookEvent, call: ToolCall, *, held: bool) -> bool:
        if not held:
            self._state.put("held", event.again, {"call_id": call.call_id})
        return True

    def _patience(self) -> float:
        return max(0.0, self._wait_until - time.monotonic())

    def _settled(self, event: HookEvent, decision: Decision, *, held: bool) -> HookAnswer:
        if decision.outcome is Outcome.REQUIRE_APPROVAL:
            return refused(_waiting(event, decision), event)
        if held:
            self._state.take("held", event.again)
        # What is allowed must be what was asked about.
        if not decision.allowed:
            return refused(f"`{event.tool}` was not run: {decision.message} (reason: {decision.reason.value})", event)
        if not _binds(event, decision):
            return refused(f"`{event.tool}` was not run: the decision is about another call", event)
        made = {"decision_id": decision.decision_id}
        self._state.put("made", event.key, made)
        if decision.outcome is Outcome.SANITIZE and decision.arguments is not None:
            if not event.call_id:  # the host will name the result by what ran
                self._state.take("made", event.key)
                self._state.put("made", event.digest_of(decision.arguments), made)
            return patched(event, decision.arguments)
        return passed(event)

    def _result(self, event: HookEvent) -> ToolResult | HookAnswer:
        """The result to judge, or what the host is told where nobody decided its call."""
        made = self._state.take("made", event.key)
        if made is None:
            return replaced(event, _UNSEEN, blanked(event.result, _UNSEEN))
        return ToolResult(decision_id=made["decision_id"], result=event.result)


def _observed(event: HookEvent, results: Sequence[Observed]) -> HookAnswer:
    (observed,) = results
    if observed.withheld:
        return replaced(event, str(observed.value), blanked(event.result, str(observed.value)))
    if observed.changed:
        return replaced(event, "parts of the result were removed before you saw it", observed.value)
    return passed(event)


def _waiting(event: HookEvent, decision: Decision) -> str:
    approval = decision.approval
    known = "" if approval is None else f" (approval {approval.id}, open until {approval.expires_at})"
    return f"`{event.tool}` was not run: a person has to approve it{known}; make the same call again after that"


def _binds(event: HookEvent, decision: Decision) -> bool:
    """Whether the decision carries the digests of this very call, and of what it gives to run."""
    asked = runs = _digest(event, event.arguments)
    if decision.outcome is Outcome.SANITIZE:
        if decision.arguments is None:
            return False
        runs = _digest(event, decision.arguments)
    return decision.request_digest == asked and decision.call_digest == runs


def _digest(event: HookEvent, arguments: dict[str, Any]) -> str:
    return call_digest(server=event.server, tool=event.tool, arguments=canonical(arguments))
