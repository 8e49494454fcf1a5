"""Agents that pause: a held call ends the run until somebody answered, in this process or the next.

What resumes a run is never believed: neither the value of a `Command(resume=...)` nor a flag of a stored state says
yes. On resumption the gate is asked again about the very call, under the same id, and releases it once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aegis.core.call import ToolCall, ToolResult
from aegis.core.canonical import call_digest, canonical
from aegis.core.decider import Decider
from aegis.core.decision import Decision
from aegis.core.json import parse
from aegis.core.outcome import Outcome
from aegis.enforce.arguments import jsonable
from aegis.enforce.failures import failure_of, is_one_of
from aegis.enforce.scope import permit_context
from aegis.errors import InvalidCall, ToolCallBlocked

_PAUSES: Final = ("langgraph.errors.GraphBubbleUp",)


def pause_or_run(decider: Decider, call: ToolCall, body: Callable[..., Any]) -> Any:
    """Run `body` for `call` inside a LangGraph node; while the call is held, the graph is interrupted.

    The node runs again on `Command(resume=...)`; the value is ignored, and the gate says what the call came to. So
    the call must have its own `call_id`, which the checkpointed state keeps (the id of the model's tool call is one).

    Raises `ToolCallBlocked` where the call or its result may not be used, and `InvalidCall` without a `call_id`.
    """
    from langgraph.types import interrupt

    decision = decider.decide(_named(call))
    while decision.outcome is Outcome.REQUIRE_APPROVAL and decision.approval is not None:
        interrupt(pause_of(call, decision))
        decision = decider.decide(call)
    return run_allowed(decider, call, decision, body)


def pause_of(call: ToolCall, decision: Decision) -> dict[str, Any]:
    """What a paused run shows: the approval and the tool, and no value of the arguments."""
    approval = decision.approval
    if approval is None:
        raise InvalidCall("the call is not held")
    shown = {"approval_id": approval.id, "expires_at": approval.expires_at, "url": approval.url}
    return {"aegis": "approval_required", "tool": call.tool, "call_id": call.call_id, **shown}


def run_allowed(decider: Decider, call: ToolCall, decision: Decision, body: Callable[..., Any]) -> Any:
    """The result of `body` with exactly what the decision allows; raises `ToolCallBlocked` where it may not be used.

    An exception of the body passes where its words may be seen; otherwise `ToolCallBlocked` stands in its place.
    """
    arguments = _allowed(call, decision)
    try:
        with permit_context(decision.permit):
            result = body(**arguments)
    except Exception as error:
        if is_one_of(error, _PAUSES) or decider.observe(failure_of(decision, error)).outcome is Outcome.ALLOW:
            raise
        raise ToolCallBlocked(decision) from None
    seen = decider.observe(ToolResult(decision_id=decision.decision_id, result=jsonable(result)))
    if not seen.allowed:
        raise ToolCallBlocked(decision)
    return seen.result if seen.outcome is Outcome.SANITIZE else result


@dataclass(frozen=True, kw_only=True)
class AgentsApprovals:
    """Approvals of the OpenAI Agents SDK (`needs_approval`, `RunState`) that the gate gives, and nothing else.

    `session` is the session of the calls, `server` the namespace of the tools.
    """

    decider: Decider
    session: str | None = None
    server: str | None = None
    _released: dict[str, Decision] = field(default_factory=dict, init=False, repr=False)

    def call(self, tool: str, arguments: Mapping[str, Any], call_id: str) -> ToolCall:
        """The call that the SDK's tool call stands for."""
        return ToolCall(tool=tool, server=self.server, arguments=dict(arguments), call_id=call_id, session=self.session)

    def needs_approval(self, tool: str) -> Callable[[Any, Mapping[str, Any], str], Any]:
        """What a function tool named `tool` takes as `needs_approval`: the gate holds the call, or it does not."""

        async def needs(_: Any, arguments: Mapping[str, Any], call_id: str) -> bool:
            decision = await self.decider.adecide(self.call(tool, arguments, call_id))
            return decision.outcome is Outcome.REQUIRE_APPROVAL

        return needs

    async def settle(self, state: Any) -> int:
        """Answer the interruptions of a `RunState` as the gate says; how many still wait for people.

        What is stored in the state says nothing: each call is asked about again. A released one is kept for its
        body, which runs it once; a refused one is rejected with the gate's own sentence.
        """
        waiting = 0
        for item in state.get_interruptions():
            raw = item.raw_item
            decision = await self.decider.adecide(self.call(raw.name, parse(raw.arguments.encode()), raw.call_id))
            if decision.outcome is Outcome.REQUIRE_APPROVAL:
                waiting += 1
            elif decision.allowed:
                self._released[raw.call_id] = decision
                state.approve(item)
            else:
                state.reject(item, rejection_message=decision.message)
        return waiting

    def run(self, tool: str, arguments: Mapping[str, Any], call_id: str, body: Callable[..., Any]) -> Any:
        """The body of a tool, run once for a call that the gate releases; raises `ToolCallBlocked` otherwise."""
        call = self.call(tool, arguments, call_id)
        decision = self._released.pop(call_id, None) or self.decider.decide(call)
        return run_allowed(self.decider, call, decision, body)


def _named(call: ToolCall) -> ToolCall:
    if not call.call_id:
        raise InvalidCall("a call that may pause needs a `call_id` that outlives the process")
    return call


def _allowed(call: ToolCall, decision: Decision) -> dict[str, Any]:
    """What may run, decoded from the bytes whose digest the decision carries; raises `ToolCallBlocked`."""
    if not decision.allowed:
        raise ToolCallBlocked(decision)
    body = canonical(call.arguments if decision.outcome is Outcome.ALLOW else decision.arguments)
    if call_digest(server=call.server, tool=call.tool, arguments=body) != decision.call_digest:
        raise InvalidCall("the decision is about another call")
    arguments: dict[str, Any] = parse(body)
    return arguments
