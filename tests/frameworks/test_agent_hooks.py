"""The conformance kit of agent-hooks with the gate as its interceptor, before and after tool calls.

The kit is about hosts: its vectors bring interceptors that answer as they are told. Here the gate stands in for each of
them, over a decider that decides as the vector tells, in the kit's own host; the kit judges what came of it.
"""

from __future__ import annotations

import asyncio
import copy
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agent_hooks import AgentContextBuilder, InterceptionEmitter, _core
from agent_hooks.ctk import RecordingInterceptor, ScriptedInterceptor, load_vectors, run_vector
from agent_hooks.ctk.reference import ReferenceHarness

from aegis.adapters.agent_hooks import Interceptor
from aegis.core.call import ToolCall, ToolResult
from aegis.core.decision import Decision, ResultDecision
from aegis.sdk.runtime import Gate
from aegis.store import open_store
from support.decider import ScriptedDecider, allowed, blocked, changed, held, sanitized, withheld

POINTS = {"pre_tool_call", "post_tool_call"}
# What an interceptor of ours says; vectors about warnings, labels, evidence or faults are about others.
SAYS = {"decision", "reason", "transform", "approval"}
OURS = {"deny": "aegis:policy_denied", "transform": "aegis:sanitized", "allow": None}


def rules(vector: dict[str, Any]) -> list[dict[str, Any]]:
    scripts = vector.get("interceptor_scripts") or [vector.get("interceptor_script") or []]
    return [rule for script in scripts for rule in script]


# A change that does not fit the arguments: the gate makes none.
NOT_SAID = {"AH-CTK-102"}


def about_tools(vector: dict[str, Any]) -> bool:
    found = rules(vector)
    ours = all(rule.get("at") in POINTS and set(rule.get("return") or {"fault"}) <= SAYS for rule in found)
    return bool(found) and ours and vector["id"] not in NOT_SAID and "host_declaration" not in vector


def worded(vector: dict[str, Any]) -> dict[str, Any]:
    """The vector, whose expectations name the reasons that the gate gives."""
    text = json.dumps(vector["expect"])
    for rule in rules(vector):
        said = rule["return"]
        ours = OURS[said["decision"]]
        if "approval" in said:
            ours = "aegis:approval_required"
        elif said["decision"] == "deny" and rule["at"] == "post_tool_call":
            ours = f"aegis:{withheld('').reason.value}"
        if said.get("reason") and ours:
            text = text.replace(f'"{said["reason"]}"', f'"{ours}"')
    return {**copy.deepcopy(vector), "expect": json.loads(text)}


class Deciding(ScriptedDecider):
    """Decides as a script of the kit says."""

    script: ScriptedInterceptor
    tools: dict[str, str]

    def decide(self, call: ToolCall) -> Decision:
        self.tools[f"d-{call.call_id}"] = call.tool
        verdict, target = self._told("pre_tool_call", call.arguments, call.tool, call.arguments)
        if verdict["decision"] == "transform":
            return sanitized(**target)(call)
        if "approval" in verdict:
            return held(call)
        return allowed(call) if verdict["decision"] == "allow" else blocked(call)

    def observe(self, result: ToolResult) -> ResultDecision:
        verdict, target = self._told("post_tool_call", result.result, self.tools[result.decision_id], {})
        if verdict["decision"] == "transform":
            return changed(target)
        return ScriptedDecider().inspect(result.result) if verdict["decision"] == "allow" else withheld(result.result)

    def _told(self, point: str, target: Any, tool: str, arguments: Any) -> tuple[dict[str, Any], Any]:
        context: dict[str, Any] = {"interception_point": point, "target": target}
        context["tool_call"] = {"id": "tc-1", "name": tool, "args": arguments}
        if point == "post_tool_call":
            context["tool_result"] = {"value": target, "is_error": False}
        verdict = self.script.intercept(context)
        if verdict["decision"] == "transform":
            path, value = verdict["transform"]["path"], json.dumps(verdict["transform"]["value"])
            target = json.loads(_core.apply_transform_ctx(json.dumps(context), path, value))["target"]
        return verdict, target


class Host(ReferenceHarness):  # type: ignore[misc]
    """The kit's own host, with the gate in place of every interceptor."""

    def setup(self, scenario: Any, interceptors: Any, *args: Any, **kwargs: Any) -> None:
        super().setup(scenario, [ours(one) for one in interceptors], *args, **kwargs)


def ours(one: Any) -> Any:
    if isinstance(one, RecordingInterceptor):
        return replace(one, inner=ours(one.inner))
    decider = Deciding()
    decider.script, decider.tools = one, {}
    return Interceptor(decider, on_approval="block", host_approves=True)


VECTORS = [vector for vector in load_vectors() if about_tools(vector)]


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["id"] for vector in VECTORS])
def test_the_kit_finds_the_gate_conformant(vector: dict[str, Any]) -> None:
    result = asyncio.run(run_vector(Host(), worded(vector)))
    assert (result.status, result.failures) == ("pass", [])


async def emitted(interceptor: Interceptor, *contexts: dict[str, Any]) -> list[Any]:
    """What the kit's emitter makes of contexts, one after the other."""
    emitter = InterceptionEmitter().register(interceptor)
    return [await emitter.emit_unchecked(context) for context in contexts]


def test_an_injection_is_denied_and_what_ran_past_the_gate_is_an_alarm(tmp_path: Path) -> None:
    build = AgentContextBuilder(agent_id="bot", framework="kit", session_id="s-1")
    evil = build.pre_tool_call(call_id="tc-1", name="find_customer", args={"name": "x' OR '1'='1' --"})
    past = build.post_tool_call(call_id="tc-2", name="find_customer", args={"name": "Ann"}, value="one customer")
    with closing(Gate.open(home=tmp_path / "home", agent="bot")) as gate:
        denied, unseen = asyncio.run(emitted(Interceptor(gate), evil, past))
        assert (denied.verdict.decision.value, denied.verdict.reason) == ("deny", "aegis:attack_detected")
        assert unseen.verdict.decision.value == "deny"
    store = open_store("sqlite:///aegis.db", home=tmp_path / "home")
    with closing(store), store.reader() as reader:
        kinds = [one.kind for one in reader.entries(0, reader.head().size)]
    assert [kind for kind in kinds if kind in ("decision", "alarm")] == ["decision", "alarm"]


def test_whatever_fails_in_the_interceptor_is_a_denial() -> None:
    build = AgentContextBuilder(agent_id="bot", framework="kit", session_id="s-1")
    broken = build.pre_tool_call(call_id="tc-1", name="pay", args={})
    del broken["session"]
    verdict = asyncio.run(Interceptor(ScriptedDecider()).intercept(broken))
    assert (verdict["decision"], verdict["reason"]) == ("deny", "aegis:unavailable")


def test_both_points_are_among_the_vectors() -> None:
    assert {rule["at"] for vector in VECTORS for rule in rules(vector)} == POINTS
