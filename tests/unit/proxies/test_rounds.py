"""Calls whose server asks back: decided once, continued once, and only as they were."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall
from aegis.core.decider import Decider
from aegis.core.decision import Decision
from aegis.detect.rules import builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.scanner import Scanner
from aegis.enforce.enforcement import Enforcer
from aegis.gate.control import set_agent
from aegis.policy.guards.descriptions import DescriptionScanner
from aegis.proxies.mcp.judge import ROUND_S, McpJudge, Rounds
from aegis.proxies.mcp.messages import Message
from aegis.proxies.mcp.tools import PinFile, ToolBook
from support.approvals import approved
from support.decider import ScriptedDecider, sanitized
from support.deployments import deployment

SCANNER = Scanner(load(builtin_folder()), cache=default_cache_folder())
ASKING: Message = {
    "resultType": "input_required",
    "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "who?"}}},
    "requestState": "opaque",
}
DONE: Message = {"resultType": "complete", "content": [{"type": "text", "text": "deployed"}]}


class Place:
    """One judge over a scripted decider, and a clock that a test moves."""

    def __init__(self, tmp_path: Path, decider: ScriptedDecider | None = None) -> None:
        self.decider = decider or ScriptedDecider()
        self.now = 0.0
        tools = ToolBook("mcp:test", DescriptionScanner(SCANNER), PinFile(tmp_path / "pins.json"))
        tools.stale = False
        self.judge = McpJudge(
            server="mcp:test",
            enforcer=Enforcer(self.decider),
            tools=tools,
            ask=self.ask,
            rounds=Rounds(lambda: self.now),
        )
        self._number = 0

    async def ask(self, method: str, params: Message) -> Message:
        raise AssertionError("nothing is asked of the server")

    async def made(self, result: Message, *, method: str = "tools/call", **params: Any) -> tuple[Message, Message]:
        """What reaches the server of a request, and what the client sees of this result."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        verdict = await self.judge.request(message)
        assert verdict.forward is not None
        seen = await self.judge.answer({"jsonrpc": "2.0", "id": self._number, "result": result})
        forwarded: Message = verdict.forward["params"]
        return forwarded, seen["result"]


FIRST: Message = {"name": "deploy", "arguments": {"to": "prod"}}
AGAIN: Message = {**FIRST, "requestState": "opaque", "inputResponses": {"who": {"action": "accept"}}}
READ: Message = {"uri": "notes://one"}


@pytest.mark.parametrize(
    ("method", "first"), [("tools/call", FIRST), ("resources/read", READ), ("prompts/get", {"name": "greet"})]
)
async def test_a_call_in_two_rounds_is_decided_once_and_its_end_is_judged(
    tmp_path: Path, method: str, first: Message
) -> None:
    place = Place(tmp_path)
    assert (await place.made(ASKING, method=method, **first))[1] == ASKING
    assert place.decider.observed == []
    again = {**first, "requestState": "opaque", "inputResponses": {"who": {"action": "accept"}}}
    assert await place.made(DONE, method=method, **again) == (again, DONE)
    assert len(place.decider.decided) == 1
    assert [one.result for one in place.decider.observed] == [DONE]


async def test_changed_arguments_stay_changed_in_every_round(tmp_path: Path) -> None:
    place = Place(tmp_path, ScriptedDecider(rules={"deploy": sanitized(to="test")}))
    assert (await place.made(ASKING, **FIRST))[0]["arguments"] == {"to": "test"}
    second = {**ASKING, "requestState": "later"}
    assert (await place.made(second, **AGAIN))[0]["arguments"] == {"to": "test"}
    assert (await place.made(DONE, **{**AGAIN, "requestState": "later"}))[0]["arguments"] == {"to": "test"}
    assert len(place.decider.decided) == 1


@pytest.mark.parametrize(
    "other",
    [
        {**AGAIN, "arguments": {"to": "moon"}},
        {**AGAIN, "name": "destroy"},
        {**AGAIN, "requestState": "forged"},
        {**AGAIN, "more": 1},
        FIRST,
    ],
)
async def test_anything_but_the_same_request_with_its_state_is_decided_anew(tmp_path: Path, other: Message) -> None:
    place = Place(tmp_path)
    await place.made(ASKING, **FIRST)
    await place.made(DONE, **other)
    assert len(place.decider.decided) == 2


async def test_a_state_is_good_for_one_round_and_not_for_long(tmp_path: Path) -> None:
    place = Place(tmp_path)
    await place.made(ASKING, **FIRST)
    await place.made(DONE, **AGAIN)
    await place.made(DONE, **AGAIN)
    assert len(place.decider.decided) == 2
    await place.made(ASKING, **{**FIRST, "arguments": {"to": "later"}})
    place.now += ROUND_S
    await place.made(DONE, **{**AGAIN, "arguments": {"to": "later"}})
    assert len(place.decider.decided) == 4


class Agreeing:
    """A gate whose held calls somebody approves at once."""

    def __init__(self, gate: DeployedGate) -> None:
        self._gate = gate
        self.adecide, self.aobserve = gate.adecide, gate.aobserve

    async def await_decision(self, call: ToolCall, decision: Decision, _: float | None = None) -> Decision:
        await asyncio.to_thread(approved, self._gate, decision)
        return await self._gate.await_decision(call, decision)


@pytest.mark.parametrize("risk", ["low", "high"])
async def test_what_was_released_goes_on_until_its_agent_is_stopped(tmp_path: Path, risk: str) -> None:
    text = f'version: 1\nprofile: standard\ntools:\n  "mcp:test/deploy": {{risk: {risk}}}\n'
    with closing(deployment(tmp_path / "home", text)) as home:
        place = Place(tmp_path)
        place.judge.enforcer = Enforcer(cast("Decider", Agreeing(home.gate)))
        await place.made(ASKING, **FIRST)
        with home.store.reader() as reader:
            size = reader.head().size
        await place.made({**ASKING, "requestState": "later"}, **AGAIN)
        with home.store.reader() as reader:
            assert reader.head().size == size  # the same decision, and nobody was asked for another approval
        home.gate.record(set_agent("bot", state="revoked", reason="", principal="ann"))
        message = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {**AGAIN, "requestState": "later"}}
        verdict = await place.judge.request(message)
        assert verdict.forward is None
        assert "revoked" in str(verdict.reply)


@pytest.mark.parametrize("more", [{"content": [{"type": "text", "text": "x"}]}, {"contents": []}, {"other": 1}])
async def test_a_question_that_holds_a_result_too_is_judged_like_one(tmp_path: Path, more: Message) -> None:
    place = Place(tmp_path)
    await place.made({**ASKING, **more}, **FIRST)
    assert len(place.decider.observed) == 1
    await place.made(DONE, **AGAIN)
    assert len(place.decider.decided) == 2
