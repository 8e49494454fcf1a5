"""A judge that is a model: a short conversation, in which every tool call of its own passes the gate."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from aegis.core.decision import Decision, ResultDecision
from aegis.core.judging import JudgeRules, JudgeSpec, ModelSpec
from aegis.core.outcome import Outcome
from aegis.judges.answer import read_answer
from aegis.judges.command import Failed
from aegis.judges.model import Result, Spent
from aegis.judges.prompt import system_prompt
from aegis.judges.providers.client import BreakerOpen, ProviderFailed, Providers
from aegis.judges.providers.turns import Asked, Turn
from aegis.judges.tools import Refused, definitions, run_tool
from aegis.judges.workspace import Workspace

MICRO = 1_000_000


class GateDoor(Protocol):
    """The gate as a judge's own tool calls see it: decided, and their results looked at."""

    def decide(self, judge: JudgeSpec, run_id: str, tool: str, arguments: dict[str, Any]) -> Awaitable[Decision]: ...

    def observe(self, judge: JudgeSpec, decision: Decision, result: str) -> Awaitable[ResultDecision]: ...


@dataclass(kw_only=True)
class Conversation:
    """One run of one model judge."""

    rules: JudgeRules
    judge: JudgeSpec
    model: ModelSpec
    run_id: str
    workspace: Workspace
    providers: Providers
    door: GateDoor
    mask: Callable[[str], str]
    spent: Spent = field(default_factory=Spent)
    transcript: list[dict[str, Any]] = field(default_factory=list)

    async def result(self, criteria: str, data: str, word: str, deadline: float) -> Result:
        """What the model makes of the fenced payload `data`; raises `Failed` or `Malformed`."""
        system = system_prompt(criteria, self.judge.instruction, word)
        tools = definitions(self.judge)
        turns = [Turn(role="user", text=data)]
        for _ in range(self.judge.limits.turns):
            try:
                answered = await self.providers.ask(
                    self.rules, self.model, system, turns, tools, max(0.001, deadline - time.monotonic())
                )
            except BreakerOpen as error:
                raise Failed("breaker", "the provider failed too often and is not asked for a while") from error
            except ProviderFailed as error:
                raise Failed("provider", str(error)) from error
            self._count(answered.tokens_in, answered.tokens_out)
            self.transcript.append(
                {"text": answered.turn.text, "calls": [[call.name, call.arguments] for call in answered.turn.calls]}
            )
            if self.spent.tokens_in + self.spent.tokens_out > self.judge.limits.tokens:
                raise Failed("tokens", "the judge used more tokens than it may")
            if not answered.turn.calls:
                return read_answer(answered.turn.text)
            turns.append(answered.turn)
            for call in answered.turn.calls:
                said = await self._tool(call, deadline)
                self.transcript.append({"tool": call.name, "result": said})
                turns.append(Turn(role="tool", text=said, call_id=call.call_id))
        raise Failed("turns", "the judge gave no answer within its turns")

    def _count(self, tokens_in: int, tokens_out: int) -> None:
        cost = (tokens_in * self.model.price_in + tokens_out * self.model.price_out) // MICRO
        self.spent = self.spent.plus(Spent(tokens_in=tokens_in, tokens_out=tokens_out, cost=cost))

    async def _tool(self, call: Asked, deadline: float) -> str:
        """One tool call of the judge: decided like any other, run in the sandbox, its result looked at."""
        if call.arguments is None or call.name not in self.judge.tools.names:
            return _error("there is no such tool, or its arguments are no object")
        decision = await self.door.decide(self.judge, self.run_id, call.name, call.arguments)
        if not decision.allowed:
            return _error(decision.message)
        arguments = call.arguments if decision.arguments is None else decision.arguments
        try:
            said = await run_tool(self.judge, self.workspace, call.name, arguments, deadline - time.monotonic())
        except Refused as error:
            return _error(str(error))
        seen = await self.door.observe(self.judge, decision, said)
        if seen.outcome is Outcome.BLOCK:
            return _error(seen.message)
        return self.mask(said if seen.outcome is Outcome.ALLOW else str(seen.result))


def _error(message: str) -> str:
    return orjson.dumps({"error": message}).decode()
