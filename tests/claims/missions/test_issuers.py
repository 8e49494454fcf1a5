"""The issuer of what is signed is the owner of the key that signed it; nothing signed is believed out of its time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.mission import MAX_SKEW_S
from aegis.core.outcome import Reason
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, MissionInvalid, StoreConflict
from aegis.keys.jws import IssuerKey
from aegis.missions import status
from aegis.missions.declare import sign_mission, verify_mission
from aegis.missions.holder import CHALLENGE_S, prove_session
from aegis.missions.verify import read_issuers
from support.missions import ISSUER, Desk, b64, declaration, desk, jwk, signer
from support.shell import aegis

ACME, BOLT, HOLDER = signer(11), signer(12), signer(13)
TRUSTED = {"acme": ACME, "bolt": BOLT}
REFERENCE = {"reference": "list", "max_age": 60}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    issuers = ", ".join(f"{name}: {b64(key.public)}" for name, key in TRUSTED.items())
    made = desk(tmp_path_factory.mktemp("issuers"), f"missions: {{issuers: {{{issuers}}}}}")
    yield made
    made.home.close()


def enrol(place: Desk, key: Any, **members: Any) -> None:
    full = declaration(**members)
    place.gate.record(place.gate.issuing.issue(ISSUER, token=sign_mission(full, key)).unit)


def publish(place: Desk, key: Any, **members: Any) -> None:
    claims = {"iss": "acme", "reference": "list", "iat": int(time.time()), **members}
    place.gate.record(place.gate.issuing.publish(ISSUER, status.sign(key, status.STATUS, orjson.dumps(claims))))


@pytest.mark.claim("MIS-15")
@pytest.mark.parametrize("iss", ["acme", "issuer-1", "Bolt", "bolt ", "bоlt"])
def test_an_issuer_enrols_in_no_other_name(place: Desk, iss: str) -> None:
    with pytest.raises(MissionInvalid) as refused:
        enrol(place, BOLT, iss=iss, mission_id="m-forged")
    assert refused.value.member == "iss"


@pytest.mark.claim("MIS-15")
def test_an_issuer_neither_stops_nor_revives_what_another_one_issued(place: Desk) -> None:
    now = int(time.time())
    enrol(place, ACME, iss="acme", mission_id="m-listed", revocation=REFERENCE)
    publish(place, ACME, iat=now - 30)
    place.open("m-listed", "s-listed")
    assert place.call("list_rows", "s-listed").allowed
    with pytest.raises(MissionInvalid) as refused:
        publish(place, BOLT, iat=now - 20, revoked=["m-listed"])
    assert refused.value.member == "iss"
    # Under its own name the other issuer has a list of its own, of the same reference.
    publish(place, BOLT, iss="bolt", iat=now - 20, revoked=["m-listed"])
    assert place.call("list_rows", "s-listed").allowed
    publish(place, ACME, iat=now - 10, revoked=["m-listed"])
    assert place.call("list_rows", "s-listed").reason is Reason.REVOKED
    publish(place, BOLT, iss="bolt", iat=now)
    assert place.call("list_rows", "s-listed").reason is Reason.REVOKED


@pytest.mark.claim("MIS-15")
def test_who_was_delegated_to_stands_and_falls_with_the_list_of_the_issuer_above(place: Desk) -> None:
    now = int(time.time())
    own = {"iss": "acme", "mission_id": "m-above", "revocation": {"reference": "above", "max_age": 60}}
    enrol(place, ACME, **own, delegation={"depth": 1, "subjects": ["*"]})
    publish(place, ACME, reference="above", iat=now - 20)
    child = place.delegate("m-above", "r-above", revocation={"reference": "above", "max_age": 60})
    place.open(child, "s-below")
    assert place.call("list_rows", "s-below").allowed
    publish(place, BOLT, iss="bolt", reference="above", iat=now - 10, revoked=[child])
    assert place.call("list_rows", "s-below").allowed
    publish(place, ACME, reference="above", iat=now - 5, suspended=[child])
    assert place.call("list_rows", "s-below").reason is Reason.REVOKED


@pytest.mark.claim("MIS-15")
def test_who_suspended_a_mission_resumes_it_or_an_administrator_does(place: Desk) -> None:
    mission = place.issue()
    place.move(mission, "suspended")
    another = Principal(id="issuer-2", roles=frozenset({"issuer"}))
    with pytest.raises(InvalidCall) as refused:
        place.gate.issuing.move(another, mission, "active", "please")
    assert refused.value.status == 403
    place.move(mission, "active")
    prepared = place.gate.issuing.move(another, mission, "suspended", "mine")
    place.gate.record(prepared)
    late = place.gate.issuing.move(another, mission, "active", "mine")
    root = Principal(id="root", roles=frozenset({"admin"}))
    place.gate.record(place.gate.issuing.move(root, mission, "active", ""))
    place.gate.record(place.gate.issuing.move(root, mission, "suspended", ""))
    with pytest.raises(StoreConflict):
        place.gate.record(late)
    place.gate.record(place.gate.issuing.move(another, mission, "revoked", "anybody may stop"))


@pytest.mark.claim("MIS-15")
def test_a_deployment_s_own_key_signs_no_status_list(place: Desk) -> None:
    place.issue()
    with pytest.raises(MissionInvalid) as refused:
        publish(place, place.gate.parts.keys.mission_signer(), iss="issuer-1")
    assert refused.value.member == "kid"


@pytest.mark.claim("MIS-15")
@settings(deadline=None)
@given(owner=st.sampled_from([*TRUSTED, None]), iss=st.sampled_from([*TRUSTED, "issuer-1", "ACME"]))
def test_a_mission_is_believed_of_the_owner_of_its_key_alone(owner: str | None, iss: str) -> None:
    token = sign_mission(declaration(iss=iss), ACME)
    trusted = {ACME.kid: IssuerKey(ACME.public, owner)}
    if owner in (None, iss):
        assert verify_mission(token, trusted.get).iss == iss
    else:
        with pytest.raises(MissionInvalid):
            verify_mission(token, trusted.get)


@pytest.mark.claim("MIS-15")
@pytest.mark.parametrize(("owner", "code"), [("acme", 0), ("bolt", 1), (None, 0)])
def test_a_verifier_holds_a_key_to_its_owner_too(
    tmp_path_factory: pytest.TempPathFactory, owner: str | None, code: int
) -> None:
    folder = tmp_path_factory.mktemp("offline")
    made = desk(folder / "home", f"missions: {{issuers: {{acme: {b64(ACME.public)}}}}}")
    try:
        enrol(made, ACME, iss="acme", mission_id="m-acme")
    finally:
        made.home.close()
    out, file = folder / "out", folder / "issuers.json"
    assert aegis("log", "export", "--out", str(out), "--home", str(folder / "home")).returncode == 0
    key = {"kty": "OKP", "crv": "Ed25519", "kid": ACME.kid, "x": b64(ACME.public)}
    file.write_bytes(orjson.dumps({"keys": [key if owner is None else {**key, "iss": owner}]}))
    told = aegis("log", "verify", str(out), "--key", str(out / "keys.json"), "--issuer", str(file), "--json")
    assert told.returncode == code, told.stdout
    assert (owner is None) is any("`iss`" in line for line in orjson.loads(told.stdout).get("not_covered", ()))


def test_the_owner_of_a_key_is_text() -> None:
    key = {"kty": "OKP", "crv": "Ed25519", "kid": "k", "x": b64(ACME.public), "iss": 7}
    with pytest.raises(Exception, match="not text"):
        read_issuers(orjson.dumps({"keys": [key]}))


def opened(place: Desk, session: str, *, late: int) -> None:
    """Open a session with a proof whose `iat` is `late` seconds after now."""
    mission = place.issue(cnf=jwk(HOLDER))
    nonce, unit = place.gate.issuing.challenge(place.gate.principal)
    place.gate.record(unit)
    now = place.gate.parts.clock() // 1_000_000
    proof = prove_session(
        HOLDER, audience="aegis", nonce=nonce, mission_id=mission, session=session, now_seconds=now + late
    )
    place.open(mission, session, proof=proof)


@pytest.mark.claim("MIS-18")
@pytest.mark.parametrize("late", [0, -CHALLENGE_S, MAX_SKEW_S - 5])
def test_a_proof_of_about_now_opens_a_session(place: Desk, late: int) -> None:
    opened(place, f"s-now{late}", late=late)


@pytest.mark.claim("MIS-18")
@pytest.mark.parametrize("late", [-CHALLENGE_S - MAX_SKEW_S - 5, MAX_SKEW_S + 5, -(10**9), 10**9])
def test_a_proof_of_another_time_opens_none(place: Desk, late: int) -> None:
    with pytest.raises(MissionInvalid) as refused:
        opened(place, f"s-then{late}", late=late)
    assert (refused.value.member, refused.value.code, refused.value.status) == ("iat", "proof_invalid", 403)


def _mission(place: Desk, **times: int) -> None:
    enrol(place, ACME, iss="acme", mission_id=f"m-{sorted(times.items())}", **times)


@pytest.mark.claim("MIS-18")
@pytest.mark.parametrize(
    ("accept", "times", "member"),
    [
        (_mission, {"iat": -100, "exp": -1}, "exp"),
        (_mission, {"iat": -100, "exp": 0}, "exp"),
        (_mission, {"iat": MAX_SKEW_S + 5, "exp": 3_600}, "iat"),
        (_mission, {"iat": 50, "exp": 50}, "exp"),
        (lambda place, **times: publish(place, ACME, reference="future", **times), {"iat": MAX_SKEW_S + 5}, "iat"),
    ],
)
def test_what_is_over_or_not_yet_is_not_taken(place: Desk, accept: Any, times: dict[str, int], member: str) -> None:
    now = place.gate.parts.clock() // 1_000_000
    with pytest.raises(MissionInvalid) as refused:
        accept(place, **{name: now + offset for name, offset in times.items()})
    assert refused.value.member == member
