"""What a person at an MCP client is shown of a held call, and what their answer is bound to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.canonical import call_digest, canonical
from aegis.core.decision import Decision
from aegis.proxies.mcp.judge import AskingDecider, Said
from aegis.proxies.mcp.messages import Message
from support.decider import ScriptedDecider, held

CALL = ToolCall(tool="deploy", server="mcp:test", arguments={"to": "pr\u202eod"}, call_id="c-1")


class Patient(ScriptedDecider):
    """Answers a held call only after everything else that is ready has run."""

    async def await_decision(
        self,
        call: ToolCall,
        decision: Decision,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Decision:
        for _ in range(10):
            await asyncio.sleep(0)
        return self.wait(call, decision, timeout)


class Place:
    """One decider that asks, what it asked, and what was answered."""

    def __init__(self, answer: Message | None) -> None:
        self.asked: list[str] = []
        self.said: list[Said] = []
        self._answer = answer
        self.decider = AskingDecider(Patient(), self.elicit, self.resolve)

    async def elicit(self, params: Message) -> Message | None:
        self.asked.append(params["message"])
        return self._answer

    async def resolve(self, said: Said) -> None:
        self.said.append(said)


def accepted(**content: Any) -> Message:
    return {"action": "accept", "content": content}


@pytest.mark.parametrize(
    ("answer", "decision"),
    [(accepted(decision="approve"), "approve"), (accepted(decision="deny"), "deny"), ({"action": "decline"}, "deny")],
)
async def test_an_answer_carries_the_digests_of_what_was_shown(answer: Message, decision: str) -> None:
    place = Place(answer)
    decision_held = held(CALL)
    await place.decider.await_decision(CALL, decision_held)
    (said,) = place.said
    assert said.decision == decision
    assert said.call_digest == call_digest(server="mcp:test", tool="deploy", arguments=canonical(CALL.arguments))
    assert said.policy_digest == decision_held.policy_digest
    assert said.to_wire().keys() == {"decision", "reason", "call_digest", "policy_digest"}


async def test_what_a_reader_would_not_see_is_spelled_out() -> None:
    place = Place(None)
    await place.decider.await_decision(CALL, held(CALL))
    assert place.asked[0].isascii()
    assert '"pr\\u202eod"' in place.asked[0]


@pytest.mark.parametrize(
    "answer",
    [None, {"action": "cancel"}, accepted(), accepted(decision="yes"), {"action": "accept"}, {"content": {}}],
)
async def test_anything_but_a_plain_answer_counts_for_nothing(answer: Message | None) -> None:
    place = Place(answer)
    await place.decider.await_decision(CALL, held(CALL))
    assert (len(place.asked), place.said) == (1, [])


async def test_a_call_that_would_run_with_other_arguments_is_not_put_to_somebody_who_sees_these() -> None:
    place = Place(accepted(decision="approve"))
    patched = ToolCall(tool="deploy", server="mcp:test", arguments={"to": "test"}, call_id="c-1")
    await place.decider.await_decision(CALL, held(patched))
    assert (place.asked, place.said) == ([], [])
