"""The gate as an interceptor of agent-hooks: hosts that speak that contract ask it before and after every tool call.

The contract is between a host and its interceptors: what runs, and that nothing runs past it, is the host's word. So
this is no seam of `aegis.auto()`, which takes the places itself; it is for hosts that offer no other place.
"""

from __future__ import annotations

from typing import Any, Final

from aegis.core.bounded import Bounded
from aegis.core.call import ToolResult
from aegis.core.decider import Decider
from aegis.core.outcome import Outcome
from aegis.enforce.enforcement import Attempt, Enforced, Enforcer, OnApproval, log
from aegis.enforce.memory import Memory
from aegis.enforce.scope import Session

MAX_CALLS: Final = 10_000  # calls whose results are still expected
_ALLOW: Final = {"decision": "allow"}

Context = dict[str, Any]
Verdict = dict[str, Any]


class Interceptor:
    """An interceptor for `pre_tool_call` and `post_tool_call`; at every other point it allows.

    Register it as the host's last one: what a later one makes of the arguments is not seen. `decider` is a `Gate` or a
    `Client`. What becomes of a held call, `on_approval` says, as for `aegis.auto()`; with `host_approves` one that is
    still held is denied in the contract's own way, which lets the host's approval resolver lift it.
    """

    def __init__(self, decider: Decider, *, on_approval: OnApproval = "wait", host_approves: bool = False) -> None:
        told = getattr(decider, "alarm", None)
        self._enforcer = Enforcer(decider, on_approval=on_approval, on_uncovered=told)
        self._host_approves = host_approves
        self._memory = Memory()
        self._allowed: Bounded[tuple[str, str], Enforced] = Bounded(MAX_CALLS, 0)

    async def intercept(self, context: Context) -> Verdict:
        """The verdict on a context, as JSON; whatever fails here is a denial."""
        point = context.get("interception_point")
        try:
            if point == "pre_tool_call":
                return await self._before(context)
            if point == "post_tool_call":
                return await self._after(context)
        except Exception as error:
            log.warning("an interceptor denied because it failed: %s", type(error).__name__)
            return _denied("unavailable", "the call could not be decided")
        return dict(_ALLOW)

    async def _before(self, context: Context) -> Verdict:
        call, session = context["tool_call"], Session(name=context["session"]["id"])
        call_id = self._memory.execution_id(session.name, None, call["id"])
        attempt = Attempt(tool=call["name"], arguments=call["args"], call_id=call_id)
        (enforced,) = await self._enforcer.arun(self._enforcer.enforce([attempt], session))
        held = enforced.decision.outcome is Outcome.REQUIRE_APPROVAL
        if enforced.allowed or (held and self._host_approves):
            self._allowed.put((session.name, call["id"]), enforced)
        if not enforced.allowed:
            denied = _denied(enforced.decision.reason.value, enforced.refusal)
            return {**denied, "approval": {}} if held and self._host_approves else denied
        return _transformed(enforced.arguments()) if enforced.changed else dict(_ALLOW)

    async def _after(self, context: Context) -> Verdict:
        call, value = context["tool_call"], context["tool_result"]["value"]
        enforced = self._allowed.get((context["session"]["id"], call["id"]))
        if enforced is None or enforced.tool != call["name"]:
            self._enforcer.uncovered(call["name"])
            return _denied("unavailable", "the result belongs to no call that was allowed")
        result = ToolResult(decision_id=enforced.decision.decision_id, result=value)
        (observed,) = await self._enforcer.arun(self._enforcer.observe([result]))
        if observed.withheld:
            return _denied(observed.decision.reason.value, observed.value)
        return _transformed(observed.value) if observed.changed else dict(_ALLOW)


def _denied(reason: str, message: str) -> Verdict:
    return {"decision": "deny", "reason": f"aegis:{reason}", "message": message}


def _transformed(value: Any) -> Verdict:
    return {"decision": "transform", "reason": "aegis:sanitized", "transform": {"path": "$target", "value": value}}
