"""The gate as judges meet it: their own calls are decided like any other, under a principal with little authority."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final, Protocol

from msgspec import structs

from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ResultDecision
from aegis.core.judging import JudgeSpec
from aegis.core.names import Selector
from aegis.core.principal import Principal
from aegis.gate.control import ControlState
from aegis.gate.record import Subject
from aegis.missions.standing import Missions
from aegis.policy.mission import MissionView
from aegis.policy.policy import Policy

# The mission that a judge's own calls are held to: that of the session whose call it looks at.


def worker_view(missions: Missions, worker: Subject, state: ControlState, policy: Policy) -> MissionView | None:
    """The worker's mission as its judges meet it, or `None` where it has none; raises `MissionInvalid`.

    A judge takes nothing from budgets and uses up no proof: those are the worker's.
    """
    attended = missions.attend(worker, state, policy, repeats=True, taken=True)
    return None if attended is None else structs.replace(attended.view, for_judge=True)


# Keys name their holder `agent:...`, `key:...` or by a name that the operator chose, which cannot begin so.
PREFIX: Final = "judge:"


class JudgeDecide(Protocol):
    """Decides one call of a judge that looks at a call of `worker`; an evaluation has no worker."""

    def __call__(self, call: ToolCall, *, principal: Principal, worker: Subject | None) -> Awaitable[Decision]: ...


class Observe(Protocol):
    """Looks at one result for a principal."""

    def __call__(self, result: ToolResult, *, principal: Principal) -> Awaitable[ResultDecision]: ...


def judge_principal(judge: JudgeSpec) -> Principal:
    """An agent that may call this judge's own tools and nothing else; it approves nothing and gets no permit."""
    server = PREFIX + judge.name
    tools = tuple(Selector(f"{server}/{name}") for name in judge.tools.names)
    return Principal(id=server, roles=frozenset({"agent"}), agent=server, tools=tools)


def is_judge(principal: Principal) -> bool:
    """Whether a call is a judge's own: it passes every guard, and is not judged in turn."""
    return principal.id.startswith(PREFIX)


class JudgeDoor:
    """Lets a judge's tool calls through the gate of its worker, and no further than the worker's mission goes."""

    def __init__(self, decide: JudgeDecide, observe: Observe, worker: Subject | None = None):
        self._worker = worker
        self._decide = decide
        self._observe = observe

    async def decide(self, judge: JudgeSpec, run_id: str, tool: str, arguments: dict[str, Any]) -> Decision:
        """The decision on one call of the judge; `run_id` is claimed as its parent."""
        call = ToolCall(tool=tool, server=PREFIX + judge.name, arguments=arguments, parent=run_id)
        return await self._decide(call, principal=judge_principal(judge), worker=self._worker)

    async def observe(self, judge: JudgeSpec, decision: Decision, result: str) -> ResultDecision:
        """What of a result the judge may see."""
        seen = ToolResult(decision_id=decision.decision_id, result=result)
        return await self._observe(seen, principal=judge_principal(judge))
