"""A child is at most its parent, and stops with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Reason, Verdict
from aegis.errors import InvalidCall, MissionInvalid, PermitInvalid
from aegis.missions import status as jws
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import sign_mission
from aegis.missions.registry import manifest_digest
from support.missions import ISSUER, Desk, b64, build, claims, declaration, desk, jwk, signer

ELSEWHERE = signer(8)
PARENT: dict[str, Any] = {
    "tools": {"allow": ["read_*", "list_rows"], "forbid": ["read_secret"]},
    "effects": ["read", "write"],
    "forbidden_scope": {"paths": ["glob:/ws/private/**"]},
    "budgets": {"calls": 10, "seconds": 600, "money": {"EUR": 50}},
    "delegation": {"depth": 2, "subjects": ["bot", "sub-*"]},
    "evidence": ["task"],
    "postconditions": [{"id": "clean", "check": "no_secrets"}],
    "flow": {"classes": {"a": {"tools": ["x"]}, "b": {"tools": ["y"]}}, "rules": []},
    "max_denials": 5,
}
CHILD: dict[str, Any] = {**PARENT, "parent": "m-1", "mission_id": "m-2", "jti": "j-2", "sub": "sub-1"}
CHILD |= {"delegation": {"depth": 1, "subjects": ["sub-1"]}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("lineage"), f"missions: {{issuers: {{elsewhere: {b64(ELSEWHERE.public)}}}}}")
    yield made
    made.home.close()


def test_an_equal_child_one_level_down_is_attenuated() -> None:
    parent = declaration(**PARENT)
    check_attenuation(parent, build(parent, **CHILD))


@pytest.mark.parametrize(
    ("dimension", "changes"),
    [
        ("parent", {"parent": "m-9"}),
        ("aud", {"aud": "elsewhere"}),
        ("delegation.depth", {"delegation": {"depth": 2, "subjects": ["sub-1"]}}),
        ("sub", {"sub": "stranger"}),
        ("delegation.subjects", {"delegation": {"depth": 1, "subjects": ["*"]}}),
        ("exp", {"exp": int(time.time()) + 90_000}),
        ("tools", {"tools": {"allow": ["*"], "forbid": ["read_secret"]}}),
        ("tools", {"tools": {"allow": ["read*"], "forbid": ["read_secret"]}}),
        ("denials", {"tools": {"allow": ["read_*"]}}),
        ("denials", {"forbidden_scope": {}}),
        ("denials", {"max_denials": 6}),
        ("denials", {"max_denials": None}),
        ("effects", {"effects": ["read", "exec"]}),
        ("scope", {"scope": {"paths": ["glob:/**"]}, "forbidden_scope": {"paths": ["glob:/ws/private/**"]}}),
        ("scope", {"scope": {"hosts": ["glob:**.example.com"]}}),
        ("scope", {"scope": {"recipients": ["glob:*@*"]}}),
        ("scope", {"scope": {"commands": ["glob:git *"]}}),
        ("scope", {"scope": {"paths": ["glob:a/**"], "base": "/ws"}}),
        ("budgets", {"budgets": {"calls": 11, "seconds": 600, "money": {"EUR": 50}}}),
        ("budgets", {"budgets": {"seconds": 600, "money": {"EUR": 50}}}),
        ("budgets", {"budgets": {"calls": 10, "money": {"EUR": 50}}}),
        ("flow", {"flow": {}}),
        ("evidence", {"evidence": []}),
        ("evidence", {"insufficient_evidence": "require-approval"}),
        ("postconditions", {"postconditions": []}),
        ("mode", {"mode": "attest"}),
    ],
)
def test_a_child_that_goes_beyond_is_refused_by_the_dimension(dimension: str, changes: dict[str, Any]) -> None:
    parent = declaration(**PARENT)
    members = {**CHILD, **changes}
    if dimension == "scope" and "forbidden_scope" not in changes:
        members["forbidden_scope"] = PARENT["forbidden_scope"] if "paths" in changes["scope"] else {}
        parent = build(parent, forbidden_scope=members["forbidden_scope"])
    with pytest.raises(MissionInvalid) as refused:
        check_attenuation(parent, build(parent, **members))
    assert refused.value.member == dimension


def test_a_narrower_child_is_attenuated_in_every_dimension() -> None:
    parent = declaration(**PARENT)
    narrower = {
        "tools": {"allow": ["read_file"], "forbid": ["read_*", "x"]},
        "effects": ["read"],
        "scope": {"paths": ["exact:/ws/a", "glob:/ws/b/*"], "hosts": ["exact:x.cdn.example.com"]},
        "budgets": {"calls": 1, "seconds": 1, "money": {"EUR": 0}, "tokens": 3},
        "evidence": ["task", "session_proof"],
        "cnf": jwk(signer(3)),
        "delegation": {},
    }
    check_attenuation(parent, build(parent, **{**CHILD, **narrower}))


def test_lineage_stands_in_every_receipt(place: Desk) -> None:
    root = place.issue(delegation={"depth": 2, "subjects": ["bot"]})
    middle = place.delegate(root, "m", delegation={"depth": 1, "subjects": ["bot"]})
    leaf = place.delegate(middle, "l")
    place.open(leaf, "s-deep")
    assert place.receipt(place.call("list_rows", "s-deep"))["lineage"] == [root, middle, leaf]


def test_delegation_is_idempotent_by_its_request(place: Desk) -> None:
    root = place.issue(delegation={"depth": 1, "subjects": ["bot"]})
    asked = claims(purpose="once")
    first = place.gate.issuing.delegate(ISSUER, root, claims=asked, request_id="r")
    place.gate.record(first.unit)
    again = place.gate.issuing.delegate(ISSUER, root, claims=asked, request_id="r")
    assert (again.unit, again.token) == (None, first.token)
    with pytest.raises(InvalidCall) as refused:
        place.gate.issuing.delegate(ISSUER, root, claims=claims(purpose="other"), request_id="r")
    assert refused.value.status == 409


def test_an_agent_delegates_its_own_mission_and_no_other(place: Desk) -> None:
    own = place.issue(delegation={"depth": 1, "subjects": ["*"]})
    other = place.issue(sub="somebody", delegation={"depth": 1, "subjects": ["*"]})
    agent = place.gate.principal
    assert place.gate.issuing.delegate(agent, own, claims=claims(), request_id="x").unit is not None
    with pytest.raises(InvalidCall) as refused:
        place.gate.issuing.delegate(agent, other, claims=claims(), request_id="x")
    assert refused.value.status == 403


def test_an_agent_issues_and_revokes_nothing(place: Desk) -> None:
    mission = place.issue()
    with pytest.raises(InvalidCall) as refused:
        place.gate.issuing.issue(place.gate.principal, claims=claims())
    assert refused.value.status == 403
    with pytest.raises(InvalidCall) as refused:
        place.gate.issuing.move(place.gate.principal, mission, "revoked", "")
    assert refused.value.status == 403


def test_revoking_a_mission_stops_every_descendant_at_its_next_call(place: Desk) -> None:
    root = place.issue(delegation={"depth": 2, "subjects": ["bot"]})
    middle = place.delegate(root, "m", delegation={"depth": 1, "subjects": ["bot"]})
    place.open(place.delegate(middle, "l"), "s-stop")
    assert place.call("list_rows", "s-stop").allowed
    place.move(root, "revoked")
    assert place.call("list_rows", "s-stop").reason is Reason.REVOKED
    with pytest.raises(MissionInvalid):
        place.open(middle, "s-new")


def test_a_suspended_mission_goes_on_when_it_is_resumed_and_a_revoked_one_never(place: Desk) -> None:
    mission = place.issue()
    place.open(mission, "s-pause")
    place.move(mission, "suspended")
    assert place.call("list_rows", "s-pause").reason is Reason.REVOKED
    place.move(mission, "active")
    assert place.call("list_rows", "s-pause").allowed
    place.move(mission, "revoked")
    with pytest.raises(Exception, match="not one that can be moved"):
        place.move(mission, "active")


def test_a_repeat_of_an_allowed_call_is_refused_after_revocation(place: Desk) -> None:
    mission = place.issue()
    place.open(mission, "s-again")
    first = place.call("list_rows", "s-again")
    place.move(mission, "revoked")
    assert place.ask(ToolCall(tool="list_rows", session="s-again", call_id=first.call_id)).reason is Reason.REVOKED


def listed(place: Desk, **members: Any) -> None:
    status = {"iss": "elsewhere", "reference": "list-1", "iat": int(time.time()), **members}
    place.gate.record(place.gate.issuing.publish(ISSUER, jws.sign(ELSEWHERE, jws.STATUS, orjson.dumps(status))))


def test_a_status_that_is_not_known_or_too_old_is_insufficient_evidence(place: Desk) -> None:
    reference = {"reference": "list-1", "max_age": 30}
    full = declaration(iss="elsewhere", mission_id="m-status", revocation=reference)
    place.gate.record(place.gate.issuing.issue(ISSUER, token=sign_mission(full, ELSEWHERE)).unit)
    listed(place, iat=int(time.time()) - 20)
    place.open("m-status", "s-status")
    assert place.call("list_rows", "s-status").allowed
    listed(place, iat=int(time.time()) - 10, suspended=["m-status"])
    assert place.call("list_rows", "s-status").reason is Reason.REVOKED
    stale = declaration(iss="elsewhere", mission_id="m-stale", revocation={"reference": "never", "max_age": 5})
    place.gate.record(place.gate.issuing.issue(ISSUER, token=sign_mission(stale, ELSEWHERE)).unit)
    with pytest.raises(MissionInvalid):
        place.open("m-stale", "s-stale")


def test_a_status_list_is_only_replaced_by_a_newer_one(place: Desk) -> None:
    listed(place, reference="list-2", iat=1_000)
    with pytest.raises(Exception, match="as new"):
        listed(place, reference="list-2", iat=999)


def test_an_expired_mission_refuses_and_so_does_its_repeat(place: Desk) -> None:
    mission = place.issue(exp=int(time.time()) + 60)
    place.open(mission, "s-over")
    parts = place.gate.parts
    real = parts.clock
    object.__setattr__(parts, "clock", lambda: real() + 65_000_000)
    try:
        decision = place.call("list_rows", "s-over")
        assert (decision.reason, decision.verdict) == (Reason.MISSION_INVALID, Verdict.VIOLATION)
    finally:
        object.__setattr__(parts, "clock", real)


def test_a_mission_of_another_agent_or_deployment_opens_no_session(place: Desk) -> None:
    with pytest.raises(MissionInvalid) as refused:
        place.open(place.issue(sub="somebody"), "s-other")
    assert refused.value.member == "sub"
    with pytest.raises(MissionInvalid) as refused:
        place.gate.issuing.issue(ISSUER, token=sign_mission(declaration(iss="elsewhere", aud="x"), ELSEWHERE))
    assert refused.value.member == "aud"


def test_a_tool_manifest_that_changed_opens_no_session(place: Desk) -> None:
    tools = [{"name": "list_rows", "description": "rows"}, {"name": "read_file"}]
    mission = place.issue(tool_manifest=manifest_digest(tools))
    with pytest.raises(MissionInvalid) as refused:
        place.open(mission, "s-tools", tools=[{"name": "list_rows", "description": "other"}, {"name": "read_file"}])
    assert refused.value.code == "tool_changed"
    place.open(mission, "s-tools", tools=list(reversed(tools)))
    assert place.call("list_rows", "s-tools").allowed
    place.open(mission, "s-no-tools")
    assert place.call("list_rows", "s-no-tools").missing == ("tool_manifest",)


def test_a_permit_is_void_once_the_mission_of_its_call_or_one_above_was_stopped(place: Desk) -> None:
    root = place.issue(delegation={"depth": 1, "subjects": ["bot"]})
    place.open(place.delegate(root, "p"), "s-permit")
    calls = [ToolCall(tool="list_rows", session="s-permit", call_id=f"p-{n}", want_permit=True) for n in range(2)]
    first, second = (place.ask(call).permit for call in calls)
    assert place.gate.redeem(first, tool="list_rows", arguments={})
    place.move(root, "suspended")
    with pytest.raises(PermitInvalid) as refused:
        place.gate.redeem(second, tool="list_rows", arguments={})
    assert (refused.value.code, refused.value.status) == ("permit_revoked", 409)
    place.move(root, "active")
    assert place.gate.redeem(second, tool="list_rows", arguments={})
