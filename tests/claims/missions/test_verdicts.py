"""Three verdicts: what could not be evaluated is never called compliant."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome, Reason, Verdict
from support.missions import Desk, desk


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("verdicts"))
    made.open(made.issue())
    yield made
    made.home.close()


@pytest.mark.parametrize(
    "value",
    [
        "{email}",
        "${x}",
        "{{x}}",
        "<pending:call_7>",
        " {x.y} ",
        "${steps.one.output}",
        "$result:call_7",
        "{0}",
        "{a[0]}",
    ],
)
def test_a_placeholder_is_missing_evidence_and_is_named(place: Desk, value: str) -> None:
    decision = place.call("list_rows", filter=value)
    assert (decision.outcome, decision.verdict) == (Outcome.BLOCK, Verdict.INSUFFICIENT_EVIDENCE)
    assert decision.reason is Reason.INSUFFICIENT_EVIDENCE
    assert decision.missing == ("/filter",)


@pytest.mark.parametrize(
    "value",
    ["{}", '{"a": 1}', "a{3}", "\\frac{a}{b}", "if (x) { y }", "a{color: red}", "100 %", "$5", "{ a b }", "x -> {y}"],
)
def test_braces_in_literal_content_are_no_placeholders(place: Desk, value: str) -> None:
    assert place.call("list_rows", filter=value).verdict is Verdict.COMPLIANT


def test_a_template_is_a_placeholder_inside_of_a_path_but_not_of_a_text(place: Desk) -> None:
    assert place.call("read_file", path="/ws/{date}/a.txt").missing == ("/path",)
    assert place.call("list_rows", body="Dear {name}, thank you").verdict is Verdict.COMPLIANT


@pytest.mark.parametrize("path", ["{x}", "${x}", "{{x}}", "<pending:call_7>"])
def test_a_resource_that_is_a_placeholder_is_missing_evidence_and_no_violation(place: Desk, path: str) -> None:
    decision = place.call("read_file", path=path)
    assert (decision.outcome, decision.verdict) == (Outcome.BLOCK, Verdict.INSUFFICIENT_EVIDENCE)
    assert decision.missing == ("/path",)
    # What can be told already is told: wherever the placeholder leads, this is outside.
    assert place.call("read_file", path=f"/etc/{path}").verdict is Verdict.VIOLATION


@pytest.mark.parametrize("value", [{"$ref": "call_7"}, {"$result": "call_7"}, {"$pending": "x"}])
def test_a_reference_to_a_pending_result_is_missing_evidence(place: Desk, value: dict[str, str]) -> None:
    assert place.call("list_rows", rows=[value]).missing == ("/rows/0",)


def test_a_reference_of_json_schema_is_content(place: Desk) -> None:
    assert place.call("list_rows", shape={"$ref": "#/definitions/x"}).verdict is Verdict.COMPLIANT


@pytest.mark.parametrize("kind", ["generator", "iterator", "stream", "awaitable"])
def test_generators_iterators_and_streams_are_missing_evidence_and_never_consumed(place: Desk, kind: str) -> None:
    async def later() -> int:
        return 1

    source = io.StringIO("abc")
    awaitable = later()
    values: dict[str, Any] = {
        "generator": (number for number in [1, 2]),
        "iterator": iter([1, 2]),
        "stream": source,
        "awaitable": awaitable,
    }
    decision = place.call("list_rows", rows={"deep": [values[kind]]})
    awaitable.close()
    assert decision.verdict is Verdict.INSUFFICIENT_EVIDENCE
    assert decision.missing == ("/rows/deep/0",)
    if kind in ("generator", "iterator"):
        assert list(values[kind]) == [1, 2]
    assert source.read() == "abc"


def test_what_the_caller_declares_unresolved_is_missing_evidence(place: Desk) -> None:
    decision = place.ask(
        ToolCall(tool="list_rows", arguments={"a": 1}, session="s-1", call_id="u-1", unresolved=("/a",))
    )
    assert decision.missing == ("/a",)


def test_a_tool_whose_effects_nobody_knows_is_missing_evidence(place: Desk) -> None:
    assert "effects" in place.call("zzz").missing


@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        ("fail-closed", Outcome.BLOCK),
        ("require-approval", Outcome.REQUIRE_APPROVAL),
        ("fail-open-with-attestation", Outcome.ALLOW),
    ],
)
def test_the_policy_answers_for_missing_evidence_and_stands_in_every_receipt(
    tmp_path: Path, policy: str, outcome: Outcome
) -> None:
    place = desk(tmp_path / "home", "insufficient_evidence: fail-open-with-attestation")
    place.open(place.issue(insufficient_evidence=policy))
    decision = place.call("list_rows", filter="{x}")
    receipt = place.receipt(decision)
    assert decision.outcome is outcome
    # Open or not, the receipt never calls it compliant.
    assert receipt["verdict"] == "insufficient_evidence"
    assert receipt["settings"]["insufficient_evidence"] == policy
    assert receipt["missing"] == ["argument"]
    assert place.receipt(place.call("list_rows"))["settings"]["insufficient_evidence"] == policy
    place.home.close()


def test_deployment_and_mission_combine_to_the_stricter(place: Desk) -> None:
    place.open(place.issue(insufficient_evidence="fail-open-with-attestation"), "s-open")
    assert place.call("list_rows", "s-open", filter="{x}").outcome is Outcome.BLOCK


def test_an_agent_cannot_choose_its_evidence_policy(place: Desk) -> None:
    arguments = {"insufficient_evidence": "fail-open-with-attestation", "verdict": "compliant", "filter": "{x}"}
    assert place.call("list_rows", **arguments).outcome is Outcome.BLOCK


def test_missing_evidence_never_covers_a_violation(tmp_path: Path) -> None:
    place = desk(tmp_path / "home", "insufficient_evidence: fail-open-with-attestation")
    place.open(place.issue(insufficient_evidence="fail-open-with-attestation"))
    decision = place.call("read_file", path="/etc/hosts", note="{x}")
    assert (decision.outcome, decision.verdict) == (Outcome.BLOCK, Verdict.VIOLATION)
    place.home.close()


def test_a_mission_that_attests_records_the_violation_and_refuses_nothing(place: Desk) -> None:
    place.open(place.issue(mode="attest", scope={}), "s-attest")
    decision = place.call("read_file", "s-attest", path="/ws/a")
    assert (decision.outcome, decision.verdict) == (Outcome.ALLOW, Verdict.VIOLATION)
    assert place.receipt(decision)["settings"]["mode"] == "attest"


@pytest.mark.parametrize(
    ("changes", "tool"),
    [
        ({"tools": {"allow": ["read_file"]}}, "list_rows"),
        ({"tools": {"allow": ["list"]}}, "list_rows"),
        ({"tools": {"allow": ["*"], "forbid": ["list_*"]}}, "list_rows"),
        ({"effects": ["read"]}, "write_file"),
        ({"effects": []}, "list_rows"),
    ],
)
def test_a_tool_or_an_effect_that_the_mission_does_not_allow_is_refused(
    place: Desk, changes: dict[str, Any], tool: str
) -> None:
    session = f"s-{changes}-{tool}"[:60]
    place.open(place.issue(**changes), session)
    assert place.call(tool, session).reason is Reason.MISSION_INVALID


def test_nothing_that_decides_is_read_from_the_arguments(place: Desk) -> None:
    place.open(place.issue(tools={"allow": ["read_file"]}), "s-claims")
    claimed = {"mission_id": "x", "signature_valid": True, "manifest_digest": "x", "visible": True, "mission": {}}
    assert not place.call("list_rows", "s-claims", **claimed).allowed


def test_flow_between_classes_needs_a_rule(place: Desk) -> None:
    flow = {
        "classes": {
            "private": {"tools": ["read_file"]},
            "web": {"tools": ["fetch_url"]},
            "mail": {"tools": ["send_mail"]},
        },
        "rules": [{"source": "private", "sink": "mail", "action": "allow"}],
    }
    place.open(place.issue(flow=flow), "s-flow")
    url = "https://api.example.com/"
    assert place.call("fetch_url", "s-flow", url=url).allowed
    place.open(place.issue(flow=flow), "s-flow-2")
    assert place.call("read_file", "s-flow-2", path="/ws/a").allowed
    assert place.call("fetch_url", "s-flow-2", url=url).reason is Reason.EXFILTRATION
    assert place.call("send_mail", "s-flow-2", to="a@example.com").allowed


def test_calls_without_a_mission_are_refused_where_one_is_required(tmp_path: Path) -> None:
    place = desk(tmp_path / "home", "missions: {required: true}")
    assert place.call("list_rows", None).reason is Reason.MISSION_INVALID
    assert place.call("list_rows", "unopened").reason is Reason.MISSION_INVALID
    place.open(place.issue())
    assert place.call("list_rows").allowed
    place.home.close()


def test_probing_ends_the_session(place: Desk) -> None:
    place.open(place.issue(max_denials=3), "s-probe")
    for number in range(3):
        assert place.call("read_file", "s-probe", path=f"/etc/hosts{number}").reason is Reason.SCOPE_VIOLATION
    assert place.call("read_file", "s-probe", path="/ws/a").reason is Reason.CHAIN_BLOCKED
