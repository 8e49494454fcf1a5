"""The fault matrix of the threat model: what is slow, gone, wrong or hostile ends in a refusal."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.bootstrap import Deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.call import ToolCall, ToolResult
from aegis.core.finding import Report
from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.errors import ConfigError, StoreCorrupt, StoreError, StoreUnavailable
from aegis.gate.events import Event
from aegis.policy.guards.content import ContentGuard
from aegis.policy.guards.result import ResultContentGuard
from aegis.sdk.client import Client
from support.deployments import TOOLS, deployment
from support.faults import FaultyStore, Hands, gate_over
from support.raw_server import Received, answer, serving

READ = ToolCall(tool="read_file", arguments={"path": "notes.txt"})
MAIL = ToolCall(tool="send_email", arguments={"to": "a@example.com"}, call_id="m1")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Deployment]:
    opened = deployment(tmp_path / "home")
    opened.gate.decide(READ)  # the agent's key is in the log before anything breaks
    yield opened
    opened.close()


def bodies(place: Deployment) -> list[dict[str, Any]]:
    with place.store.reader() as reader:
        return [orjson.loads(entry.body) for entry in reader.entries(0, reader.head().size)]


def asked(gate: DeployedGate, call: ToolCall, way: str) -> Any:
    return gate.decide(call) if way == "sync" else asyncio.run(gate.adecide(call))


both_ways = pytest.mark.parametrize("way", ["sync", "async"])


# Guards


@both_ways
@pytest.mark.claim("FLT-01")
def test_a_guard_that_raises_blocks_and_is_recorded(
    place: Deployment, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    gate = rebuilt(place, monkeypatch, ContentGuard)
    decision = asked(gate, READ, way)
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    assert decision.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert bodies(place)[decision.receipt.index]["decision"] == "block"


@pytest.mark.claim("FLT-02")
def test_an_observed_guard_that_raises_is_recorded_and_does_not_refuse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = deployment(
        tmp_path / "home",
        f"version: 1\nprofile: standard\nlimits: {{rate: unlimited}}\nguards: {{content: {{mode: observe}}}}\n{TOOLS}",
    )
    decision = rebuilt(opened, monkeypatch, ContentGuard).decide(READ)
    assert decision.outcome is Outcome.ALLOW
    assert any(finding.guard == "content" and finding.rule == "guard-failed" for finding in decision.findings)
    opened.close()


def rebuilt(place: Deployment, monkeypatch: pytest.MonkeyPatch, broken: type) -> DeployedGate:
    """The gate of `place` under the same configuration, compiled with a guard that raises."""

    def raising(self: object, case: object) -> Report:
        raise ValueError("the guard is broken")

    monkeypatch.setattr(broken, "check_result" if broken is ResultContentGuard else "check", raising)
    assert place.config_path is not None
    text = place.config_path.read_text() + "\nregistry: {max_allowed_tier: medium}\n"
    place.policy.replace(text, by="user:ann")
    return place.gate


@pytest.mark.claim("FLT-03")
def test_more_than_a_guard_may_read_blocks_whatever_the_evidence_policy(tmp_path: Path) -> None:
    opened = deployment(
        tmp_path / "home",
        "version: 1\nprofile: standard\ninsufficient_evidence: fail-open-with-attestation\n"
        f"limits: {{rate: unlimited}}\n{TOOLS}",
    )
    decision = opened.gate.decide(ToolCall(tool="read_file", arguments={"path": "x" * (2 << 20)}))
    assert decision.outcome is Outcome.BLOCK
    assert decision.verdict is not Verdict.COMPLIANT
    assert [finding.category for finding in decision.findings] == ["resource_limit"]
    opened.close()


@pytest.mark.claim("FLT-04")
def test_a_result_guard_that_raises_withholds_the_result(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    decision = place.gate.decide(READ)
    gate = rebuilt(place, monkeypatch, ResultContentGuard)
    observed = gate.observe(ToolResult(decision_id=decision.decision_id, result="text"))
    assert (observed.outcome, observed.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


# The log and its store


@both_ways
@pytest.mark.parametrize("error", [StoreUnavailable("the disk is full"), StoreCorrupt("a row that nobody wrote")])
@pytest.mark.parametrize("broken", ["transaction", "commit", "reader", "epoch"])
@pytest.mark.claim("FLT-05")
def test_without_its_log_the_gate_blocks_and_recovers_by_itself(
    place: Deployment, broken: str, error: StoreError, way: str
) -> None:
    store = FaultyStore(place.store)
    gate = gate_over(place, store=store)
    before = len(bodies(place))
    store.broken, store.error = {broken, "reader"} if broken == "epoch" else {broken}, error
    decision = asked(gate, READ, way)
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    assert decision.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert decision.receipt is None
    assert len(bodies(place)) == before
    store.broken = set()
    assert asked(gate, READ, way).outcome is Outcome.ALLOW


@pytest.mark.claim("FLT-05")
def test_a_decision_that_was_not_committed_is_not_released(place: Deployment) -> None:
    store = FaultyStore(place.store, broken={"commit"}, error=StoreUnavailable("the disk went away"))
    gate = gate_over(place, store=store)
    size = len(bodies(place))
    assert not gate.decide(READ).allowed
    assert len(bodies(place)) == size


@pytest.mark.claim("FLT-06")
def test_a_store_that_is_too_slow_blocks(place: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.log.writer.LEADER_WAIT_S", 0.05)
    monkeypatch.setattr("aegis.gate.commits.COMMIT_WAIT_S", 0.05)
    held = threading.Event()
    store = FaultyStore(place.store, gate=held)
    gate = gate_over(place, store=store)
    first: list[Any] = []
    thread = threading.Thread(target=lambda: first.append(gate.decide(READ)))
    thread.start()
    try:
        assert store.entered.wait(60)
        for way in ("sync", "async"):
            decision = asked(gate, READ, way)
            assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    finally:
        held.set()
        thread.join()
    assert first[0].outcome is Outcome.ALLOW
    gate._commits.close()


@pytest.mark.claim("FLT-07")
@pytest.mark.parametrize("broken", ["transaction", "reader"])
def test_a_result_that_cannot_be_recorded_is_withheld(place: Deployment, broken: str) -> None:
    store = FaultyStore(place.store)
    gate = gate_over(place, store=store)
    decision = gate.decide(READ)
    store.broken, store.error = {broken}, StoreUnavailable("gone")
    observed = gate.observe(ToolResult(decision_id=decision.decision_id, result="text"))
    assert (observed.outcome, observed.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


@pytest.mark.claim("FLT-08")
def test_a_call_whose_agent_may_have_been_stopped_is_blocked(place: Deployment) -> None:
    # A gate that never read the control state, over a store that can still append.
    store = FaultyStore(place.store, broken={"reader"}, error=StoreUnavailable("gone"))
    decision = gate_over(place, store=store).decide(READ)
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


# Configuration, clock, audience


@pytest.mark.parametrize("text", ["version: 1\nprofile: nowhere\n", "version: 1\nprofil: standard\n", "{", "\x00", ""])
@pytest.mark.claim("FLT-09")
def test_a_broken_configuration_leaves_the_old_one_in_force(place: Deployment, text: str) -> None:
    digest = place.gate.decide(READ).policy_digest
    assert place.config_path is not None
    place.config_path.write_text(text)
    with pytest.raises(ConfigError):
        place.policy.reload("file")
    decision = place.gate.decide(READ)
    assert (decision.outcome, decision.policy_digest) == (Outcome.ALLOW, digest)


@pytest.mark.claim("FLT-10")
def test_a_clock_that_runs_backwards_is_reported_and_moves_no_receipt(place: Deployment) -> None:
    heard: list[Event] = []
    clock = Hands()
    gate = gate_over(place, clock=clock, listeners=[heard.append])
    first = gate.decide(READ)
    clock.now -= 3_600_000_000
    second = gate.decide(READ)
    assert first.receipt is not None and second.receipt is not None
    written = bodies(place)
    assert written[second.receipt.index]["time"] == written[first.receipt.index]["time"]
    (event,) = (event for event in heard if event.kind == "clock")
    assert event.members == {"behind_us": 3_600_000_000}


@pytest.mark.claim("FLT-11")
def test_an_approval_that_nobody_gives_expires_and_blocks(place: Deployment) -> None:
    clock = Hands()
    gate = gate_over(place, clock=clock)
    held = gate.decide(MAIL)
    assert held.outcome is Outcome.REQUIRE_APPROVAL
    clock.now += 86_400_000_000
    after = gate.decide(MAIL)
    assert (after.outcome, after.reason) == (Outcome.BLOCK, Reason.APPROVAL_EXPIRED)
    clock.now -= 86_400_000_000
    assert gate.decide(MAIL).reason is Reason.APPROVAL_EXPIRED


@both_ways
@pytest.mark.claim("FLT-12")
def test_a_listener_that_fails_changes_no_decision_and_silences_no_other(place: Deployment, way: str) -> None:
    heard: list[Event] = []

    def failing(event: Event) -> None:
        raise RuntimeError("the listener is gone")

    gate = gate_over(place, listeners=[failing, heard.append])
    assert asked(gate, READ, way).outcome is Outcome.ALLOW
    assert [event.kind for event in heard] == ["decision"]


# The gateway, seen by a client


@dataclass(frozen=True)
class Wrong:
    """What a gateway may say instead of a decision, and the reason that the client gives."""

    name: str
    say: Callable[[Received], bytes | None]
    reason: Reason = Reason.UNAVAILABLE


GATEWAYS = [
    Wrong("hangs up", lambda _: None),
    Wrong("garbage", lambda _: b"\x00\xff garbage\r\n\r\n"),
    Wrong("html", lambda _: answer(200, "<html>ok</html>")),
    Wrong("empty object", lambda _: answer(200, {})),
    Wrong("an allow and no more", lambda _: answer(200, {"decision": "allow"})),
    Wrong("500", lambda _: answer(500, {"decision": "allow"})),
    Wrong("502", lambda _: answer(502, "bad gateway")),
    Wrong("503", lambda _: answer(503, {"error": {"code": "unavailable", "message": "m"}})),
    Wrong("429", lambda _: answer(429, {"error": {"code": "rate_limited", "message": "m"}}), Reason.RATE_LIMITED),
    Wrong("409", lambda _: answer(409, {"error": {"code": "conflict", "message": "m"}}), Reason.CONFLICT),
    Wrong("a redirect", lambda _: answer(307, "", "Location: http://127.0.0.1:1/")),
]


@both_ways
@pytest.mark.parametrize("wrong", GATEWAYS, ids=lambda wrong: wrong.name)
@pytest.mark.claim("FLT-13")
def test_a_gateway_that_does_not_plainly_allow_refuses(wrong: Wrong, way: str) -> None:
    with serving(wrong.say) as server:
        client = Client(server.url, "key", agent="bot")
        decision = client.decide(READ) if way == "sync" else asyncio.run(client.adecide(READ))
        client.close()
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, wrong.reason)
    assert not decision.allowed


@both_ways
@pytest.mark.claim("FLT-13")
def test_a_gateway_that_is_gone_refuses(way: str) -> None:
    with serving(lambda _: None) as server:
        url = server.url
    client = Client(url, "key", agent="bot")
    decision = client.decide(READ) if way == "sync" else asyncio.run(client.adecide(READ))
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)


@both_ways
@pytest.mark.claim("FLT-13")
def test_a_gateway_that_is_too_slow_refuses(way: str) -> None:
    release = threading.Event()

    def late(_: Received) -> bytes | None:
        release.wait(60)
        return None

    with serving(late) as server:
        client = Client(server.url, "key", agent="bot", timeout=0.1)
        decision = client.decide(READ) if way == "sync" else asyncio.run(client.adecide(READ))
        release.set()
        client.close()
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
