"""Conditions that need the whole of a stream: held, judged at its end, and never called compliant unjudged."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from aegis.core.outcome import Outcome, Reason, Verdict
from aegis.errors import StreamCut
from aegis.missions.results import sign_stream
from aegis.policy.guards.stream import WHOLE_BYTES
from support.missions import Desk, b64, desk, signer

SECRET = b"SSN 536-90-4399"
KEY = signer(7, "provenance")
SHAPE = {"id": "shape", "check": "schema", "schema": '{"type": "object", "required": ["rows"]}'}
SOURCES = {"id": "sources", "check": "allowed_sources", "sources": ["exact:docs.example.com"]}
CLEAN = {"id": "clean", "check": "no_pii"}
OPEN = "insufficient_evidence: fail-open-with-attestation"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Desk]:
    made = desk(tmp_path / "home", getattr(request, "param", ""))
    yield made
    made.home.close()


def streamed(place: Desk, chunks: list[bytes], *conditions: Any, **more: Any) -> tuple[list[bytes], Any]:
    """What was passed on, and the receipt that the log holds of the stream."""
    framing = more.pop("framing", "plain")
    place.open(place.issue(postconditions=list(conditions), **more))
    out: list[bytes] = []
    decision = place.call("list_rows")
    with contextlib.suppress(StreamCut):
        out.extend(place.gate.evaluate_streaming(decision.decision_id, chunks, framing=framing))
    return out, last_result(place)


def last_result(place: Desk) -> Any:
    with place.home.store.reader() as reader:
        entry = reader.entry(reader.head().size - 1)
    assert entry is not None and entry.kind == "result"
    return orjson.loads(entry.body)


def test_a_whole_that_meets_its_schema_is_passed_on_at_the_end(place: Desk) -> None:
    out, receipt = streamed(place, [b'{"rows": [1, ', b"2, ", b"3]}"], SHAPE)
    assert out == [b'{"rows": [1, 2, 3]}']
    assert (receipt["decision"], receipt["verdict"]) == ("allow", "compliant")


@pytest.mark.parametrize("chunks", [[b'{"ro', b"ws"], [b'{"columns": ', b"[]}"], [b"no JSON"], []])
def test_nothing_of_a_whole_that_does_not_meet_its_schema_is_passed_on(place: Desk, chunks: list[bytes]) -> None:
    out, receipt = streamed(place, chunks, SHAPE)
    assert out == []
    assert (receipt["decision"], receipt["reason"]) == ("block", Reason.POSTCONDITION_FAILED.value)
    assert receipt["guards"][0]["rules"] == ["postcondition-shape"]


@pytest.mark.parametrize("framing", ["plain", "sse", "lines"])
def test_sources_are_those_of_the_whole_however_it_is_divided(place: Desk, framing: str) -> None:
    def frame(text: bytes) -> bytes:
        value = orjson.dumps({"delta": text.decode()})
        return {"plain": text, "sse": b"data: " + value + b"\n\n", "lines": value + b"\n"}[framing]

    good = [frame(b"see https://docs.exa"), frame(b"mple.com/a for more")]
    assert b"".join(streamed(place, good, SOURCES, framing=framing)[0]) == b"".join(good)
    place.open(place.issue(postconditions=[SOURCES]), "s-2")
    decision = place.call("list_rows", "s-2")
    with pytest.raises(StreamCut):
        bad = [frame(b"see https://docs.exa"), frame(b"mple.com.evil.net/a for more")]
        assert list(place.gate.evaluate_streaming(decision.decision_id, bad, framing=framing)) == []
    assert last_result(place)["verdict"] == "violation"


def test_other_conditions_still_cut_a_stream_that_is_held(place: Desk) -> None:
    out, receipt = streamed(place, [b'{"rows": "', SECRET + b" ", b'"}'], SHAPE, CLEAN)
    assert out == []
    assert receipt["guards"][0]["rules"] == ["postcondition-clean"]


def test_beyond_the_bound_nothing_is_passed_on_where_evidence_is_required(place: Desk) -> None:
    taken = []

    def chunks() -> Iterator[bytes]:
        for number in range(100):
            taken.append(number)
            yield b"x" * (WHOLE_BYTES // 4)

    place.open(place.issue(postconditions=[SHAPE]))
    decision = place.call("list_rows")
    with pytest.raises(StreamCut) as cut:
        assert list(place.gate.evaluate_streaming(decision.decision_id, chunks())) == []
    assert (cut.value.decision.outcome, cut.value.decision.verdict) == (Outcome.BLOCK, Verdict.INSUFFICIENT_EVIDENCE)
    assert last_result(place)["reason"] == "insufficient_evidence"
    assert len(taken) < 10


@pytest.mark.parametrize("place", [OPEN], indirect=True)
def test_beyond_the_bound_a_stream_goes_on_where_the_policy_says_so_and_is_not_called_compliant(place: Desk) -> None:
    chunks = [b"x" * (WHOLE_BYTES // 4)] * 8
    out, receipt = streamed(place, chunks, SHAPE, insufficient_evidence="fail-open-with-attestation")
    assert b"".join(out) == b"".join(chunks)
    assert (receipt["decision"], receipt["verdict"]) == ("allow", "insufficient_evidence")
    assert receipt["settings"]["insufficient_evidence"] == "fail-open-with-attestation"


@pytest.mark.parametrize("place", [OPEN], indirect=True)
def test_the_stricter_evidence_policy_counts_for_results_and_streams(place: Desk) -> None:
    out, receipt = streamed(place, [b"x" * (WHOLE_BYTES + 1)], SHAPE)  # the mission itself fails closed
    assert out == []
    assert (receipt["decision"], receipt["settings"]["insufficient_evidence"]) == ("block", "fail-closed")


def test_a_schema_of_frames_cannot_be_judged(place: Desk) -> None:
    out, receipt = streamed(place, [b'{"rows": []}\n'], SHAPE, framing="lines")
    assert out == []
    assert receipt["verdict"] == "insufficient_evidence"


def test_a_condition_that_withholds_nothing_lets_the_stream_pass_and_has_its_recourse(place: Desk) -> None:
    chunks = [b"the number is ", SECRET, b" and more"]
    out, receipt = streamed(place, chunks, {**CLEAN, "recourse": ["escalate"]})
    assert b"".join(out) == b"".join(chunks)
    assert (receipt["decision"], receipt["verdict"]) == ("allow", "violation")
    assert place.call("list_rows").outcome is Outcome.REQUIRE_APPROVAL


def test_a_mission_that_attests_cuts_nothing_and_records_what_it_found(place: Desk) -> None:
    chunks = [b"the number is ", SECRET, b" and more"]
    out, receipt = streamed(place, chunks, CLEAN, SHAPE, mode="attest")
    assert b"".join(out) == b"".join(chunks)
    assert (receipt["decision"], receipt["verdict"], receipt["settings"]["mode"]) == ("allow", "violation", "attest")
    assert receipt["guards"][0]["rules"] == ["postcondition-clean", "postcondition-shape"]


@pytest.mark.parametrize("place", [f"missions: {{tool_keys: {{ask_model: {b64(KEY.public)}}}}}"], indirect=True)
@pytest.mark.parametrize(
    "more", [{"postconditions": [{"id": "by-tool", "check": "signed"}]}, {"evidence": ["signed_results"]}]
)
def test_a_stream_that_a_mission_wants_signed_is_signed_or_not_used(place: Desk, more: Any) -> None:
    place.open(place.issue(**more))
    decision = place.call("list_rows")
    with pytest.raises(StreamCut) as cut:
        list(place.gate.evaluate_streaming(decision.decision_id, [b"rows"]))
    assert cut.value.decision.reason is Reason.POSTCONDITION_FAILED
    signed = place.call("ask_model", prompt="a")
    token = sign_stream(KEY, decision_id=signed.decision_id, content=b"an answer")
    said = place.gate.evaluate_streaming(signed.decision_id, [b"an ", b"answer"], provenance=lambda: token)
    assert b"".join(said) == b"an answer"
