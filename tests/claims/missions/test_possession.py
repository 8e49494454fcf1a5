"""Whoever calls holds the key that the mission names."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap import open_deployment
from aegis.core.canonical import call_digest, canonical
from aegis.core.outcome import Reason
from aegis.errors import InvalidCall, MissionInvalid
from aegis.missions.holder import WINDOW, Window, prove_calls, prove_session
from aegis.missions.registry import TooManyChallenges
from support.missions import Desk, desk, jwk, other, signer

KEY = signer(7, "holder")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Desk]:
    made = desk(tmp_path / "home")
    yield made
    made.home.close()


@pytest.fixture
def held(place: Desk) -> Desk:
    place.open(place.issue(cnf=jwk(KEY), evidence=["session_proof", "call_proof"]), key=KEY)
    return place


def test_a_session_of_a_mission_with_a_holder_needs_its_proof(place: Desk) -> None:
    mission = place.issue(cnf=jwk(KEY))
    with pytest.raises(MissionInvalid) as refused:
        place.open(mission)
    assert refused.value.code == "proof_invalid"
    place.open(mission, key=KEY)


def test_another_key_opens_no_session(place: Desk) -> None:
    with pytest.raises(MissionInvalid):
        place.open(place.issue(cnf=jwk(KEY)), key=signer(8, "holder"))


@pytest.mark.parametrize("wrong", ["audience", "session", "mission_id"])
def test_a_session_proof_is_about_one_session_of_one_mission_here(place: Desk, wrong: str) -> None:
    mission = place.issue(cnf=jwk(KEY))
    nonce, unit = place.gate.issuing.challenge(place.gate.principal)
    place.gate.record(unit)
    said: dict[str, Any] = {"audience": "aegis", "session": "s-1", "mission_id": mission, wrong: "other"}
    with pytest.raises(MissionInvalid):
        place.open(mission, proof=prove_session(KEY, nonce=nonce, now_seconds=int(time.time()), **said))


def test_a_challenge_is_answered_once(place: Desk) -> None:
    mission = place.issue(cnf=jwk(KEY))
    nonce, unit = place.gate.issuing.challenge(place.gate.principal)
    place.gate.record(unit)
    for session in ("s-1", "s-2"):
        proof = prove_session(
            KEY, audience="aegis", nonce=nonce, mission_id=mission, session=session, now_seconds=int(time.time())
        )
        if session == "s-1":
            place.open(mission, session, proof=proof)
            continue
        with pytest.raises(MissionInvalid, match="challenge was used"):
            place.open(mission, session, proof=proof)


def test_a_nonce_that_was_never_given_opens_nothing(place: Desk) -> None:
    mission = place.issue(cnf=jwk(KEY))
    proof = prove_session(
        KEY, audience="aegis", nonce="mine", mission_id=mission, session="s-1", now_seconds=int(time.time())
    )
    with pytest.raises(MissionInvalid, match="challenge was used"):
        place.open(mission, proof=proof)


def test_a_challenge_ends_after_a_minute(place: Desk) -> None:
    mission = place.issue(cnf=jwk(KEY))
    proof = place.prove(mission, "s-1", KEY)
    parts = place.gate.parts
    real = parts.clock
    object.__setattr__(parts, "clock", lambda: real() + 61_000_000)
    try:
        with pytest.raises(MissionInvalid, match="challenge was used"):
            place.open(mission, proof=proof)
    finally:
        object.__setattr__(parts, "clock", real)


def test_a_challenge_and_its_use_survive_a_restart(tmp_path: Path) -> None:
    place = desk(tmp_path / "home")
    mission = place.issue(cnf=jwk(KEY))
    proof = place.prove(mission, "s-1", KEY)
    place.home.close()
    place.home = open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot")
    place.open(mission, proof=proof)
    place.home.close()
    place.home = open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot")
    with pytest.raises(MissionInvalid, match="challenge was used"):
        place.open(mission, proof=proof)
    place.home.close()


def test_a_flood_of_challenges_is_refused_and_evicts_none(place: Desk) -> None:
    mission = place.issue(cnf=jwk(KEY))
    first = place.prove(mission, "s-1", KEY)
    with pytest.raises(TooManyChallenges):
        for _ in range(100):
            place.gate.record(place.gate.issuing.challenge(place.gate.principal)[1])
    place.open(mission, proof=first)


def test_a_call_with_its_proof_passes_and_without_it_is_refused(held: Desk) -> None:
    assert held.ask(held.proved(KEY, 1, "list_rows")).allowed
    assert held.call("list_rows").reason is Reason.PROOF_INVALID


def test_a_changed_byte_of_the_arguments_is_refused_and_the_honest_call_passes(held: Desk) -> None:
    honest = held.proved(KEY, 1, "read_file", path="/ws/a.txt")
    assert held.ask(other(honest, arguments={"path": "/ws/b.txt"}, call_id="x")).reason is Reason.PROOF_INVALID
    assert held.ask(honest).allowed


def test_a_renamed_tool_or_server_is_refused(held: Desk) -> None:
    honest = held.proved(KEY, 1, "list_rows")
    assert held.ask(other(honest, tool="read_file", call_id="x")).reason is Reason.PROOF_INVALID
    assert held.ask(other(honest, server="mcp:x", call_id="y")).reason is Reason.PROOF_INVALID
    assert held.ask(honest).allowed


def test_a_used_number_is_refused_for_another_call(held: Desk) -> None:
    first = held.proved(KEY, 1, "list_rows")
    assert held.ask(first).allowed
    assert held.ask(other(first, call_id="again")).reason is Reason.PROOF_INVALID
    assert held.ask(held.proved(KEY, 2, "list_rows")).allowed


def test_a_retry_of_the_same_call_passes_with_its_own_proof(held: Desk) -> None:
    call = held.proved(KEY, 1, "list_rows")
    assert held.ask(call).allowed
    assert held.ask(call).allowed


@pytest.mark.parametrize("wrong", ["audience", "session", "key"])
def test_a_proof_for_another_audience_session_or_key_is_refused(held: Desk, wrong: str) -> None:
    digest = call_digest(server=None, tool="list_rows", arguments=canonical({}))
    said: dict[str, Any] = {"audience": "aegis", "session": "s-1", wrong: "other"}
    key = signer(8, "holder") if said.pop("key", None) else KEY
    proof = prove_calls(key, number=1, digests=(digest,), **said)
    call = other(held.proved(KEY, 1, "list_rows"), proof=proof)
    assert held.ask(call).reason is Reason.PROOF_INVALID


def test_calls_in_flight_may_overtake_each_other(held: Desk) -> None:
    for number in (3, 1, 2, 900, 5):
        assert held.ask(held.proved(KEY, number, "list_rows")).allowed


def test_one_proof_covers_a_batch_with_a_number_for_each_call(held: Desk) -> None:
    digests = tuple(
        call_digest(server=None, tool="read_file", arguments=canonical({"path": f"/ws/{name}"})) for name in "abb"
    )
    proof = prove_calls(KEY, audience="aegis", session="s-1", number=1, digests=digests)
    calls = [other(held.proved(KEY, 99, "read_file", path=f"/ws/{name}"), proof=proof) for name in "abbb"]
    assert [held.ask(call).allowed for call in calls] == [True, True, True, False]


def test_used_numbers_survive_a_restart(tmp_path: Path) -> None:
    place = desk(tmp_path / "home")
    place.open(place.issue(cnf=jwk(KEY), evidence=["call_proof"]), key=KEY)
    call = place.proved(KEY, 1, "list_rows")
    assert place.ask(call).allowed
    place.home.close()
    place.home = open_deployment(tmp_path / "home" / "aegis.yaml", tmp_path / "home", agent="bot")
    assert place.ask(other(call, call_id="later")).reason is Reason.PROOF_INVALID
    place.home.close()


def test_a_number_too_far_behind_counts_as_used() -> None:
    window = Window().using(1).using(WINDOW + 5)
    assert window.is_used(1) and window.is_used(5) and not window.is_used(6)
    assert window.using(6).is_used(6)


def test_a_proof_in_a_session_without_a_holder_is_refused(place: Desk) -> None:
    place.open(place.issue())
    assert place.ask(place.proved(KEY, 1, "list_rows")).reason is Reason.PROOF_INVALID


def test_missing_proof_is_covered_by_no_evidence_policy(tmp_path: Path) -> None:
    place = desk(tmp_path / "home", "insufficient_evidence: fail-open-with-attestation")
    evidence = {"evidence": ["call_proof"], "insufficient_evidence": "fail-open-with-attestation"}
    place.open(place.issue(cnf=jwk(KEY), **evidence), key=KEY)
    assert place.call("list_rows").reason is Reason.PROOF_INVALID
    place.home.close()


def test_a_session_of_that_name_is_opened_once(place: Desk) -> None:
    mission = place.issue()
    place.open(mission)
    assert not place.gate.open_session("s-1", mission=mission).fresh
    for words in ({"task": "another"}, {"tools": ["read_file"]}, {"mission": place.issue()}):
        with pytest.raises(InvalidCall, match="open already"):
            place.gate.open_session("s-1", **{"mission": mission, **words})
    with pytest.raises(InvalidCall):
        place.open("no-such-mission", "s-2")
