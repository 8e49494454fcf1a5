"""What a call lacks is named: the guard that missed it, where it is missing, and a parent that nobody knows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.core.principal import Principal
from support.missions import Desk, desk
from support.people import person
from support.served import Served
from support.shell import aegis

OTHER = Principal(id="other", roles=frozenset({"agent"}), agent="other")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("evidence"))
    made.open(made.issue())
    made.gate.open_session("s-free")
    made.ask(ToolCall(tool="list_rows", session="s-1", call_id="known"))
    made.ask(ToolCall(tool="list_rows", session="s-free", call_id="free"))
    made.ask(ToolCall(tool="list_rows", call_id="foreign"), principal=OTHER)
    yield made
    made.home.close()


def below(place: Desk, parent: str, session: str | None, **members: Any) -> Decision:
    place.calls += 1
    call_id = f"below-{place.calls}"
    return place.ask(ToolCall(tool="list_rows", session=session, parent=parent, call_id=call_id, **members))


def guard(place: Desk, decision: Decision, name: str) -> dict[str, Any]:
    """What the receipt says of one guard."""
    said: dict[str, Any] = next(one for one in place.receipt(decision)["guards"] if one["guard"] == name)
    return said


@pytest.mark.claim("MIS-17")
@pytest.mark.parametrize("parent", ["nobody", "foreign", "free", "below-1"])
def test_an_unknown_parent_is_missing_evidence_under_a_mission(place: Desk, parent: str) -> None:
    place.calls = 0 if parent == "below-1" else 100 + place.calls
    decision = below(place, parent, "s-1")
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.INSUFFICIENT_EVIDENCE)
    assert decision.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert decision.missing == ("parent",)
    assert place.receipt(decision)["missing"] == ["parent"]
    assert guard(place, decision, "mission") == {
        "guard": "mission", "outcome": "block", "rules": ["missing-evidence"],
    }  # fmt: skip
    assert guard(place, decision, "evidence")["rules"] == ["unknown-parent"]


@pytest.mark.claim("MIS-17")
def test_a_known_parent_is_none(place: Desk) -> None:
    decision = below(place, "known", "s-1")
    assert decision.allowed
    assert place.rules(decision) == []
    again = below(place, decision.decision_id, "s-1")
    assert again.allowed
    assert place.rules(again) == []


@pytest.mark.claim("MIS-17")
def test_without_a_mission_an_unknown_parent_is_pointed_out_and_refuses_nothing(place: Desk) -> None:
    for session in (None, "s-free"):
        decision = below(place, "nobody", session)
        assert decision.allowed
        assert place.rules(decision) == ["unknown-parent"]
        assert guard(place, decision, "evidence") == {
            "guard": "evidence", "outcome": "allow", "rules": ["unknown-parent"],
        }  # fmt: skip
    assert place.rules(below(place, "free", "s-free")) == []


@pytest.mark.claim("MIS-17")
@pytest.mark.parametrize(
    ("policy", "outcome"),
    [("require-approval", Outcome.REQUIRE_APPROVAL), ("fail-open-with-attestation", Outcome.BLOCK)],
)
def test_the_stricter_policy_answers_for_an_unknown_parent(tmp_path: Path, policy: Any, outcome: Outcome) -> None:
    # The deployment's own policy counts as well: it is `require-approval` here, or the usual one.
    own = "insufficient_evidence: require-approval" if policy == "require-approval" else ""
    made = desk(tmp_path / "home", own)
    try:
        made.open(made.issue(insufficient_evidence=policy))
        assert below(made, "nobody", "s-1").outcome is outcome
    finally:
        made.home.close()


def _lacks(findings: Any) -> list[tuple[str, str]]:
    return [(one.guard, one.path) for one in findings if one.rule == "missing-evidence"]


@pytest.mark.claim("IDN-11")
@pytest.mark.parametrize(
    ("arguments", "unresolved", "lacks"),
    [
        ({"path": "/ws/a"}, ("/path",), [("evidence", "/path")]),
        ({"to": "x", "cc": {"list": ["y"]}}, ("/cc/list/0",), [("evidence", "/cc/list/0")]),
        ({"path": "${steps.read.output}"}, (), [("evidence", "/path")]),
    ],
)
def test_a_block_for_want_of_evidence_names_the_guard_and_the_argument(
    place: Desk, arguments: dict[str, Any], unresolved: tuple[str, ...], lacks: list[tuple[str, str]]
) -> None:
    decision = place.ask(ToolCall(tool="list_rows", arguments=arguments, unresolved=unresolved))
    assert decision.reason is Reason.INSUFFICIENT_EVIDENCE
    assert _lacks(decision.findings) == lacks
    assert {one.outcome for one in decision.findings} == {Outcome.BLOCK}
    blocked = [one["guard"] for one in place.receipt(decision)["guards"] if one["outcome"] == "block"]
    assert blocked == [name for name, _ in lacks]
    # The receipt is of closed words: pointers hold names that the caller chose.
    assert place.receipt(decision)["missing"] == ["argument"]
    assert not any(path.strip("/") in decision.message for _, path in lacks)


@pytest.mark.claim("IDN-11")
def test_evidence_that_did_not_count_is_named_all_the_same(tmp_path: Path) -> None:
    made = desk(tmp_path / "home", "insufficient_evidence: fail-open-with-attestation")
    try:
        decision = made.ask(ToolCall(tool="list_rows", arguments={"a": 1}, unresolved=("/a",)))
        assert decision.outcome is Outcome.ALLOW
        assert _lacks(decision.findings) == [("evidence", "/a")]
        assert [one.outcome for one in decision.findings if isinstance(one, Finding)] == [Outcome.ALLOW]
    finally:
        made.home.close()


@pytest.fixture
def gateway(shared_gateway: Served) -> Served:
    return shared_gateway


@pytest.mark.claim("IDN-11")
def test_the_log_and_the_page_of_the_call_say_what_was_lacking(gateway: Served) -> None:
    body: dict[str, Any] = {"arguments": {"path": "/ws/a"}, "unresolved": ["/path"], "parent": "nobody"}
    refused = gateway.decide(key="seer", **body).json
    assert (refused["reason"], refused["missing"]) == ("insufficient_evidence", ["/path"])
    iris = person(gateway, "iris", "auditor")
    iris.sign_in()
    page = iris.get(f"/calls/{refused['decision_id']}").body.decode()
    for shown in ("missing-evidence", "/path", "unknown-parent", "names no call of this principal"):
        assert shown in page
    told = aegis("log", "show", refused["decision_id"], "--home", str(gateway.deployment.home), "--json")
    value = orjson.loads(told.stdout)
    assert {one["guard"] for one in value["receipt"]["guards"] if one["outcome"] == "block"} == {"evidence"}
    lacks = [one for one in value["payload"]["findings"] if one["rule"] == "missing-evidence"]
    assert [(one["guard"], one["path"]) for one in lacks] == [("evidence", "/path")]
    text = aegis("log", "show", refused["decision_id"], "--home", str(gateway.deployment.home)).stdout
    assert "evidence=block (missing-evidence, unknown-parent)" in text
