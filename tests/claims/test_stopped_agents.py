"""A stopped agent is given nothing: over every endpoint that agents may ask, and through every verb of the gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, StreamCut
from aegis.gate.control import set_agent
from aegis.server.table import ENDPOINTS
from support.missions import ISSUER, Desk, claims, desk
from support.served import Answer, Served, served

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
# The body of every operation that agents may ask for; an operation without one is asked with none.
BODIES: dict[str, Any] = {
    "decide": {"tool": "read_file", "arguments": {}},
    "decideBatch": {"calls": [{"tool": "read_file", "arguments": {}}]},
    "openSession": {"session": "s-stopped"},
    "sayTurn": {"text": "book a table"},
    "declarePlan": {"steps": [{"tool": "read_file"}]},
    "delegateMission": {"mission": {}, "request_id": "r"},
    "proxyChatCompletions": CHAT,
    "proxyResponses": {"model": "m", "input": "hello"},
    "proxyMessages": {**CHAT, "max_tokens": 5},
    "proxyCountTokens": CHAT,
    "startRun": {"messages": CHAT["messages"]},
    "completeChat": CHAT,
}
# An agent reads what became of its own held calls, and public keys, whatever its standing.
READS = {"listApprovals", "getApproval", "getJwks", "describe"}
OPERATIONS = [
    one.operation
    for one in ENDPOINTS
    if one.permission is not None and (not one.permission.roles or "agent" in one.permission.roles)
]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("stopped") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def before(gateway: Served) -> dict[str, str]:
    """What the agent got before it was stopped: a decision, a receipt, a permit, a session."""
    assert gateway.ask("POST", "/v1/sessions", {"session": "s-open"}).status == 201
    made = gateway.decide(call_id="before", session="s-open", want_permit=True).json
    gateway.ask("POST", "/v1/agents/bot/revoke", {"reason": "test"}, key="root")
    return {"decision_id": made["decision_id"], "permit": made["permit"]}


def asked(gateway: Served, operation: str, before: dict[str, str]) -> Answer:
    endpoint = next(one for one in ENDPOINTS if one.operation == operation)
    here = {
        "decision_id": before["decision_id"],
        "id": {"projectReceipt": before["decision_id"], "attestSession": "s-open"}.get(operation, "x"),
    }
    path = endpoint.path
    for name, value in here.items():
        path = path.replace(f"{{{name}}}", value).replace(f"{{{name}:path}}", value)
    body = BODIES.get(operation)
    if operation == "judgeResult":
        body = {"decision_id": before["decision_id"], "result": "text"}
    if operation == "verifyPermit":
        body = {"permit": before["permit"], "tool": "read_file", "arguments": {}}
    if operation == "judgeStream":
        return gateway.ask("POST", path, b'{"chunk": "x"}\n', headers={"content-type": "application/x-ndjson"})
    return gateway.ask(endpoint.method, path, body)


@pytest.mark.claim("MIS-16")
@pytest.mark.parametrize(
    "operation",
    OPERATIONS,
)
def test_no_endpoint_gives_a_stopped_agent_anything(gateway: Served, before: dict[str, str], operation: str) -> None:
    answer = asked(gateway, operation, before)
    if operation in READS:
        assert answer.status in (200, 404)
        return
    value = answer.json
    decisions = value.get("decisions") or ([value] if "decision" in value else [])
    if decisions:
        assert {(one["decision"], one["reason"]) for one in decisions} == {("block", "revoked")}
        assert not any("permit" in one or "result" in one for one in decisions)
    elif operation == "verifyPermit":
        assert (answer.status, answer.code) == (409, "permit_revoked")
    else:
        assert answer.status == 403, answer.body
        assert "stopped" in answer.body.decode()


@pytest.mark.claim("MIS-16")
def test_no_server_behind_the_proxy_is_asked_for_a_stopped_agent(gateway: Served, before: dict[str, str]) -> None:
    for method in ("POST", "GET", "DELETE"):
        answer = gateway.ask(method, "/mcp/anything", {} if method == "POST" else None)
        assert (answer.status, answer.code) == (403, "revoked")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Desk]:
    made = desk(tmp_path / "home")
    yield made
    made.home.close()


def switch(place: Desk, state: str, agent: str = "bot") -> None:
    place.gate.record(set_agent(agent, state=state, reason="test", principal="root"))


def _refused(work: Callable[[], Any]) -> bool:
    try:
        unit = work()
        if unit is not None:
            return False
    except InvalidCall as error:
        return error.code in ("revoked", "permit_revoked")
    return False


@pytest.mark.claim("MIS-16")
@pytest.mark.parametrize("stopped", ["bot", "Bot", "bоt", "b\u200bot "])
def test_every_verb_of_the_gate_refuses_a_stopped_agent(place: Desk, stopped: str) -> None:
    gate, agent = place.gate, place.gate.principal
    mission = place.issue(delegation={"depth": 1, "subjects": ["*"]})
    place.open(mission, "s-open")
    first = place.call("list_rows", "s-open")
    posted = place.call("list_rows", "s-open")
    assert place.result(posted, {"rows": []}).allowed
    permit = gate.decide(ToolCall(tool="list_rows", want_permit=True)).permit
    child: Callable[[], Any] = partial(gate.issuing.delegate, agent, mission, claims=claims(), request_id="r")
    prepared = [gate.issuing.challenge(agent)[1], child().unit]
    stream = gate.stream(place.call("list_rows", "s-open").decision_id)
    assert stream.feed(b"first words ") is not None
    verbs: dict[str, Callable[[], Any]] = {
        "open": lambda: gate.open_session("s-new"),
        "open again": lambda: gate.open_session("s-open", mission=mission),
        "open under a mission": lambda: gate.open_session("s-next", mission=mission),
        "challenge": lambda: gate.record(gate.issuing.challenge(agent)[1]),
        "delegate": child,
        "redeem": lambda: gate.redeem(permit, tool="list_rows", arguments={}),
        "attest": lambda: gate.attest_session("s-open"),
        "project": lambda: gate.project(first.decision_id),
        "stream": lambda: gate.stream(first.decision_id),
        "record a challenge": partial(gate.record, prepared[0]),
        "record a delegation": partial(gate.record, prepared[1]),
    }
    switch(place, "revoked", stopped)
    assert [name for name, work in verbs.items() if not _refused(work)] == []
    assert place.call("list_rows", "s-open").reason is Reason.REVOKED
    for judged in (place.result(first, {"rows": [1]}), place.result(posted, {"rows": []})):
        assert (judged.outcome, judged.reason, judged.result) == (Outcome.BLOCK, Reason.REVOKED, None)
    stream.feed(b"and more")
    ended = stream.close()
    assert (ended.outcome, ended.reason) == (Outcome.BLOCK, Reason.REVOKED)
    # Whoever is restored goes on, whatever name it was stopped under.
    switch(place, "active")
    assert place.call("list_rows", "s-open").allowed
    gate.open_session("s-new")


@pytest.mark.claim("MIS-16")
def test_a_stream_under_way_ends_with_its_agent(place: Desk) -> None:
    decision = place.call("list_rows", None)

    def pieces() -> Iterator[bytes]:
        yield b"one two three. "
        switch(place, "revoked")
        place.call("list_rows", None)
        yield b"four five six. "
        yield b"seven eight nine. "

    passed: list[bytes] = []
    with pytest.raises(StreamCut):
        passed.extend(place.gate.evaluate_streaming(decision.decision_id, pieces()))
    assert b"seven" not in b"".join(passed)


@pytest.mark.claim("MIS-16")
def test_another_agent_and_those_who_restore_it_are_not_touched(place: Desk) -> None:
    switch(place, "revoked")
    other = Principal(id="other", roles=frozenset({"agent"}), agent="other")
    assert place.ask(ToolCall(tool="list_rows"), principal=other).allowed
    place.gate.open_session("s-other", principal=other)
    place.issue()
    assert ISSUER.id != place.gate.principal.id
