"""What a mission may say, and how it is signed."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any

import orjson
import pytest

from aegis.core.mission import Declaration
from aegis.errors import MissionInvalid
from aegis.missions import status
from aegis.missions.declare import read_declaration, remarks, sign_mission, to_claims, verify_mission
from support.missions import b64, declaration, jwk, signer

KEY = signer(1)
TRUST = {KEY.kid: status.IssuerKey(KEY.public, None)}.get


def members(**changes: Any) -> dict[str, Any]:
    return {**to_claims(declaration()), **changes}


def token(header: dict[str, Any], claims: dict[str, Any], signature: bytes = b"\0" * 64) -> str:
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims).encode())}.{b64(signature)}"


def test_a_signed_mission_reads_back_as_what_was_signed() -> None:
    full = declaration(
        budgets={"calls": 5, "money": {"EUR": 100}},
        cnf=jwk(signer(2)),
        evidence=["call_proof"],
        postconditions=[{"id": "small", "check": "max_bytes", "limit": 10}],
        flow={"classes": {"a": {"tools": ["x"]}, "b": {"tools": ["y"]}}, "rules": []},
    )
    assert verify_mission(sign_mission(full, KEY), TRUST) == full


@pytest.mark.parametrize(
    ("wrong", "member", "helps"),
    [
        ({"exp": "tomorrow"}, "exp", "seconds since 1970"),
        ({"efects": []}, "efects", "`effects`"),
        ({"effects": ["fly"]}, "effects[0]", "`external_send`"),
        ({"scope": {"paths": ["/reports"]}}, "scope.paths[0]", "`glob:PATTERN`"),
        ({"scope": {"files": []}}, "scope", "`paths`"),
        ({"revocation": {"url": "x"}}, "revocation", "`max_age`"),
        ({"tool_manifest": "x"}, "tool_manifest", "^sha-256:"),
        ({"budgets": {"calls": "many"}}, "budgets.calls", "at least 0"),
        ({"postconditions": [{"id": "a", "check": "pii"}]}, "postconditions[0].check", "`no_pii`"),
    ],
)
def test_whoever_spells_a_member_wrongly_is_told_which_one_and_what_belongs_there(
    wrong: dict[str, Any], member: str, helps: str
) -> None:
    with pytest.raises(MissionInvalid) as refused:
        read_declaration(members(**wrong))
    assert refused.value.member == member
    assert f"`{member}`" in refused.value.message
    assert helps in refused.value.hint


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "RS256", "ES256", "PS512", ""])
def test_every_algorithm_but_eddsa_is_refused_before_any_key_is_looked_at(algorithm: str) -> None:
    with pytest.raises(MissionInvalid) as refused:
        verify_mission(token({"alg": algorithm, "kid": KEY.kid, "typ": status.MISSION}, members()), TRUST)
    assert refused.value.member == "alg"


def test_a_public_key_is_never_taken_for_an_hmac_secret() -> None:
    head = {"alg": "HS256", "kid": KEY.kid, "typ": status.MISSION}
    signed = ".".join(token(head, members()).split(".")[:2]).encode()
    forged = hmac.new(KEY.public, signed, hashlib.sha256).digest()
    with pytest.raises(MissionInvalid):
        verify_mission(token(head, members(), forged), TRUST)


@pytest.mark.parametrize("extra", [{"crit": ["b64"]}, {"jwk": {}}, {"jku": "https://x"}, {"x5c": []}, {"b64": False}])
def test_a_header_that_would_choose_how_it_is_verified_is_refused(extra: dict[str, Any]) -> None:
    with pytest.raises(MissionInvalid) as refused:
        verify_mission(token({"alg": "EdDSA", "kid": KEY.kid, "typ": status.MISSION, **extra}, members()), TRUST)
    assert refused.value.member == "header"


def test_a_token_of_another_type_is_no_mission() -> None:
    with pytest.raises(MissionInvalid) as refused:
        verify_mission(status.sign(KEY, status.CALL_PROOF, orjson.dumps(members())), TRUST)
    assert refused.value.member == "typ"


def test_a_mission_signed_by_a_key_that_nobody_trusts_is_refused() -> None:
    with pytest.raises(MissionInvalid) as refused:
        verify_mission(sign_mission(declaration(), signer(9)), TRUST)
    assert refused.value.member == "kid"


@pytest.mark.parametrize("part", [0, 1, 2])
def test_any_changed_part_of_a_token_is_refused(part: int) -> None:
    parts = sign_mission(declaration(), KEY).split(".")
    changed = base64.urlsafe_b64decode(parts[part] + "==")
    parts[part] = b64(changed[:-1] + bytes([changed[-1] ^ 1]))
    with pytest.raises(MissionInvalid):
        verify_mission(".".join(parts), TRUST)


@pytest.mark.parametrize("spoil", ["=", "\n", " ", "+"])
def test_a_token_has_one_spelling(spoil: str) -> None:
    with pytest.raises(MissionInvalid):
        verify_mission(sign_mission(declaration(), KEY) + spoil, TRUST)


def test_duplicate_members_are_refused() -> None:
    body = orjson.dumps(members())[:-1] + b',"sub":"other"}'
    with pytest.raises(MissionInvalid) as refused:
        verify_mission(status.sign(KEY, status.MISSION, body), TRUST)
    assert refused.value.member == "claims"


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({"surprise": 1}, "surprise"),
        ({"tools": {"allow": ["a"], "extra": 1}}, "tools"),
        ({"scope": {"paths": ["glob:/a"], "files": []}}, "scope"),
        ({"budgets": {"call": 1}}, "budgets"),
        ({"budgets": {"effects": {"writes": 1}}}, "budgets.effects"),
        ({"delegation": {"depth": 1, "subjects": ["x"], "x": 1}}, "delegation"),
        ({"postconditions": [{"id": "a", "check": "no_pii", "x": 1}]}, "postconditions[0]"),
        ({"cnf": {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": "A" * 43, "d": "secret"}}}, "cnf.jwk"),
        ({"effects": ["destroy"]}, "effects[0]"),
        ({"budgets": {"calls": -1}}, "budgets.calls"),
        ({"budgets": {"calls": True}}, "budgets.calls"),
        ({"mode": "observe"}, "mode"),
        ({"insufficient_evidence": "fail-open"}, "insufficient_evidence"),
    ],
)
def test_a_malformed_member_is_refused_by_its_name(changes: dict[str, Any], member: str) -> None:
    with pytest.raises(MissionInvalid) as refused:
        read_declaration(members(**changes))
    assert refused.value.member == member


@pytest.mark.parametrize(
    ("changes", "member"),
    [
        ({"exp": 1}, "exp"),
        ({"sub": "  "}, "sub"),
        ({"tools": {"allow": ["server/"]}}, "tools.allow"),
        ({"delegation": {"depth": 2}}, "delegation"),
        ({"scope": {"hosts": ["glob:  "]}}, "scope.hosts"),
        ({"scope": {"paths": ["glob:/ws/../**"]}}, None),
        ({"scope": {"base": "relative"}}, "scope.base"),
        ({"evidence": ["call_proof"]}, "cnf"),
        ({"evidence": ["tool_manifest"]}, "tool_manifest"),
        ({"postconditions": [{"id": "a", "check": "max_bytes"}]}, "postconditions[0].limit"),
        ({"postconditions": [{"id": "a", "check": "schema"}]}, "postconditions[0].schema"),
        ({"postconditions": [{"id": "a", "check": "allowed_sources"}]}, "postconditions[0].sources"),
        ({"postconditions": [{"id": "a", "check": "no_pii"}] * 2}, "postconditions[1]"),
    ],
)
def test_what_members_mean_together_is_checked(changes: dict[str, Any], member: str | None) -> None:
    if member is None:
        assert isinstance(read_declaration(members(**changes)), Declaration)
        return
    with pytest.raises(MissionInvalid) as refused:
        read_declaration(members(**changes))
    assert refused.value.member == member


def test_a_forbidden_scope_that_overlaps_ambiguously_is_refused() -> None:
    for forbidden in ("glob:/ws/**", "glob:/**", "glob:/*/secret"):
        with pytest.raises(MissionInvalid) as refused:
            read_declaration(members(forbidden_scope={"paths": [forbidden]}))
        assert refused.value.member == "forbidden_scope.paths"
    read_declaration(members(forbidden_scope={"paths": ["glob:/ws/secret/**"]}))


def test_flow_rules_that_contradict_each_other_are_refused() -> None:
    classes = {"a": {"tools": ["x"]}, "b": {"tools": ["y"]}}
    rules = [{"source": "a", "sink": "b", "action": action} for action in ("allow", "deny")]
    with pytest.raises(MissionInvalid, match="contradicts"):
        read_declaration(members(flow={"classes": classes, "rules": rules}))


def test_a_lone_double_star_is_flagged_at_issue() -> None:
    assert any("lone `**`" in one for one in remarks(declaration(scope={"paths": ["glob:**"]})))
    assert not any("lone" in one for one in remarks(declaration()))
