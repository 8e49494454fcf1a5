"""Names that look alike are one name wherever people are told apart, and nothing is named by what nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import fields

from aegis.approvals.queue import approve
from aegis.approvals.values import Approval
from aegis.bootstrap.credentials import create_account, create_key
from aegis.config.config import parse_config
from aegis.core.call import ToolCall, check_call
from aegis.detect.fold import name_skeleton
from aegis.errors import ConfigError, InvalidCall
from aegis.keys.api import issue
from support.missions import Desk, desk
from support.people import PASSWORD, state_of
from support.served import Served, served

ALIKE = ("Alice", "ALICE", "аlice", "ali\u200bce", "ａｌｉｃｅ", "al\u0131ce".replace("\u0131", "і"))
CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = (
        "version: 1\nprofile: standard\nlimits: {rate: unlimited}\n"
        "tools:\n  pay: {risk: low, effects: [read], approvals: {always: true, quorum: 2}}\n"
        "  read_file: {risk: low, effects: [read]}\n"
    )
    with served(tmp_path_factory.mktemp("names") / "home", config) as running:
        create_account(state_of(running), "alice", roles=["approver"], password=PASSWORD, by="operator:test")
        yield running


@pytest.mark.claim("NAM-05")
@pytest.mark.parametrize("name", ALIKE)
def test_a_name_that_looks_like_somebody_s_is_refused_where_it_is_made(gateway: Served, name: str) -> None:
    state: Any = state_of(gateway)
    with pytest.raises(InvalidCall):
        create_key(state, roles=["approver"], name=name, by="operator:test")
    with pytest.raises(InvalidCall):
        create_account(state, name, roles=["approver"], password=PASSWORD, by="operator:test")


@pytest.mark.claim("NAM-05")
def test_the_same_name_is_the_same_party_and_another_one_is_another(gateway: Served) -> None:
    state: Any = state_of(gateway)
    assert create_key(state, roles=["approver"], name="alice", by="operator:test").key.principal == "alice"
    assert create_key(state, roles=["approver"], name="alicia", by="operator:test").key.principal == "alicia"
    for agent in ("helper", "helper"):
        create_key(state, roles=["agent"], agent=agent, by="operator:test")
    with pytest.raises(InvalidCall) as refused:
        create_key(state, roles=["agent"], agent="Helper", by="operator:test")
    assert (refused.value.code, refused.value.status) == ("look_alike", 409)


@pytest.mark.claim("NAM-05")
@pytest.mark.parametrize("name", ["", " ", " ann", "ann ", "an\nn", "an\x00n", "an\u202en", "an\u200bn", "a:b"])
def test_nobody_is_named_by_what_nobody_sees(name: str) -> None:
    with pytest.raises(InvalidCall):
        issue(roles=["approver"], name=name, now=0)
    if name and ":" not in name:
        with pytest.raises(InvalidCall):
            issue(roles=["agent"], agent=name, now=0)


@pytest.mark.claim("APR-22")
@pytest.mark.parametrize("second", [name for name in ALIKE if name.isprintable()])
def test_two_spellings_of_one_person_are_one_yes(gateway: Served, second: str) -> None:
    """Keys of the time before names were compared are still there."""
    gateway.credentials.add("alice", "approver")
    gateway.credentials.add(second, "approver")
    held = gateway.decide("pay", call_id=f"pay-{ALIKE.index(second)}").json
    path = f"/v1/approvals/{held['approval']['id']}"
    assert gateway.ask("POST", path, {"decision": "approve"}, key="alice").json["state"] == "pending"
    again = gateway.ask("POST", path, {"decision": "approve"}, key=second)
    assert (again.status, again.code) == (409, "already_answered")
    assert gateway.ask("POST", path, {"decision": "approve"}, key="ann").json["state"] == "approved"


@pytest.mark.claim("APR-23")
@pytest.mark.parametrize("name", ["Bot", "bоt", "ＢＯＴ"])
def test_nobody_answers_a_call_of_their_own_under_a_name_that_looks_alike(gateway: Served, name: str) -> None:
    gateway.credentials.add(name, "approver")
    held = gateway.decide("pay", call_id=f"own-{name_skeleton(name)}-{len(name)}-{ord(name[1])}").json
    answer = gateway.ask("POST", f"/v1/approvals/{held['approval']['id']}", {"decision": "approve"}, key=name)
    assert (answer.status, answer.code) == (403, "own_call")


@pytest.mark.claim("APR-22")
@settings(deadline=None)
@given(st.lists(st.sampled_from(("ann", "Ann", "аnn", "bob", "BOB", "b\u200bob", "eve")), min_size=1, max_size=6))
def test_a_quorum_counts_people_and_not_spellings(people: list[str]) -> None:
    approval: Any = _held()
    voted: set[str] = set()
    for person in people:
        look = name_skeleton(person)
        if approval.state != "pending":
            break
        if look in voted:
            with pytest.raises(InvalidCall):
                approve(approval, by=person, now=1, quorum=3, scope="once", reason=None, receipt_id="r")
            continue
        approval = approve(approval, by=person, now=1, quorum=3, scope="once", reason=None, receipt_id="r")
        voted.add(look)
    assert (approval.state == "approved") is (len(voted) == 3)


def _held() -> Approval:
    members: dict[str, Any] = {one.name: 1 if one.type is int else "x" for one in fields(Approval) if one.required}
    return Approval(**{**members, "state": "pending", "created_at": 0, "expires_at": 10**18})


@pytest.mark.claim("NAM-05")
@pytest.mark.parametrize(
    "section",
    [
        "approvals: {approvers: ['user:ann', 'user:Ann']}",
        "approvals: {approvers: ['user:аnn', 'user:ann']}",
        "approvals: {approvers: ['user:ann ']}",
        "approvals: {approvers: ['group:a'], groups: {a: [ann, ANN]}}",
        "approvals: {approvers: ['group:a'], groups: {a: [ann], A: [bob]}}",
        "missions: {issuers: {acme: %s, Acme: %s}}",
    ],
)
def test_a_configuration_names_nobody_twice(section: str) -> None:
    if "%s" in section:
        section %= ("A" * 43, "B" * 42 + "A")
    with pytest.raises(ConfigError, match=r"looks like|nobody sees"):
        parse_config(f"version: 1\n{section}\n", file="x.yaml")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = desk(tmp_path_factory.mktemp("controls"))
    yield made
    made.home.close()


@pytest.mark.claim("NAM-06")
@pytest.mark.parametrize("member", ["tool", "server", "agent", "session", "call_id", "parent"])
@settings(deadline=None)
@given(control=st.sampled_from(CONTROLS), at=st.integers(0, 4))
def test_a_control_character_names_nothing(member: str, control: str, at: int) -> None:
    name = "name"[:at] + control + "name"[at:]
    members: dict[str, Any] = {"tool": "read_file", member: name}
    with pytest.raises(InvalidCall, match=member) as refused:
        check_call(ToolCall(**members))
    assert control not in refused.value.message


@pytest.mark.claim("NAM-06")
def test_a_gateway_says_which_name_holds_one(gateway: Served) -> None:
    for member in ("tool", "server", "session", "call_id"):
        answer = gateway.ask("POST", "/v1/decisions", {"tool": "read_file", "arguments": {}, member: "a\tb"})
        assert answer.status == 422
        assert member in answer.json["error"]["message"] + answer.json["error"]["hint"]
    assert gateway.ask("POST", "/v1/sessions", {"session": "a\nb"}).status == 422
    assert gateway.ask("POST", "/v1/agents/a%09b/revoke", {"reason": ""}, key="root").status == 422


@pytest.mark.claim("NAM-06")
@pytest.mark.parametrize("name", ["Überweisung ausführen", "读取文件", "support 👩‍💻", "naïve-tool", "a/b.c:d"])
def test_names_of_every_script_are_names(place: Desk, name: str) -> None:
    place.ask(ToolCall(tool=name, session=name, call_id=name))


@pytest.mark.claim("NAM-06")
@pytest.mark.parametrize("member", ["sub", "mission_id"])
def test_a_mission_holds_no_control_characters_in_its_names(place: Desk, member: str) -> None:
    with pytest.raises(InvalidCall, match=member):
        place.issue(**{member: "a\nb"})
