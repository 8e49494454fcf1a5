"""A judge that is a model: a short conversation, in which every tool call of its own passes the gate."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson

from aegis.core.decision import Decision, ResultDecision
from aegis.core.judging import JudgeRules, JudgeSpec, ModelSpec
from aegis.core.outcome import Outcome
from aegis.dialects.arguments import read_arguments
from aegis.errors import ModelFailed
from aegis.judges.answer import read_answer
from aegis.judges.command import Failed
from aegis.judges.model import Result, Spent
from aegis.judges.payload import Mask
from aegis.judges.prompt import system_prompt
from aegis.judges.providers import BreakerOpen, Providers
from aegis.judges.tools import Refused, definitions, placed, run_tool, tool_of
from aegis.judges.workspace import Workspace
from aegis.models.values import Asked, Message

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
    mask: Mask
    spent: Spent = field(default_factory=Spent)
    transcript: list[dict[str, Any]] = field(default_factory=list)

    async def result(self, criteria: str, data: str, word: str, deadline: float) -> Result:
        """What the model makes of the fenced payload `data`; raises `Failed` or `Malformed`."""
        system = system_prompt(criteria, self.judge.instruction, word)
        tools = definitions(self.judge)
        messages: list[Message] = [{"role": "system", "content": system}, {"role": "user", "content": data}]
        for _ in range(self.judge.limits.turns):
            try:
                answer = await self.providers.ask(
                    self.rules, self.model, messages, tools, max(0.001, deadline - time.monotonic())
                )
            except BreakerOpen as error:
                raise Failed("breaker", "the provider failed too often and is not asked for a while") from error
            except ModelFailed as error:
                raise Failed("provider", str(error)) from error
            self._count(answer.read, answer.wrote)
            self.transcript.append(
                {"text": answer.text, "calls": [[tool_of(call.name), call.arguments] for call in answer.calls]}
            )
            if self.spent.tokens_in + self.spent.tokens_out > self.judge.limits.tokens:
                raise Failed("tokens", "the judge used more tokens than it may")
            if not answer.calls:
                return read_answer(answer.text)
            messages.append(answer.message)
            for call in answer.calls:
                said = await self._tool(call, deadline)
                self.transcript.append({"tool": tool_of(call.name), "result": said})
                messages.append({"role": "tool", "tool_call_id": call.call_id, "content": said})
        raise Failed("turns", "the judge gave no answer within its turns")

    def _count(self, tokens_in: int, tokens_out: int) -> None:
        cost = (tokens_in * self.model.price_in + tokens_out * self.model.price_out) // MICRO
        self.spent = self.spent.plus(Spent(tokens_in=tokens_in, tokens_out=tokens_out, cost=cost))

    async def _tool(self, call: Asked, deadline: float) -> str:
        """One tool call of the judge: decided like any other, run in the sandbox, its result looked at."""
        name = tool_of(call.name)
        given, _ = read_arguments(name, call.arguments)
        if given is None or name not in self.judge.tools.names:
            return _error("there is no such tool, or its arguments are no object")
        given = placed(self.workspace, name, given)
        decision = await self.door.decide(self.judge, self.run_id, name, given)
        if not decision.allowed:
            return _error(decision.message)
        arguments = given if decision.arguments is None else decision.arguments
        try:
            said = await run_tool(self.judge, self.workspace, name, arguments, deadline - time.monotonic())
        except Refused as error:
            return _error(str(error))
        seen = await self.door.observe(self.judge, decision, said)
        if seen.outcome is Outcome.BLOCK:
            return _error(seen.message)
        return self.mask(said if seen.outcome is Outcome.ALLOW else str(seen.result))


def _error(message: str) -> str:
    return orjson.dumps({"error": message}).decode()
