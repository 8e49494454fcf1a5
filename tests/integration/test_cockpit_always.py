"""Scoped "always" on a page: what three answers propose is shown, and put in force by an administrator alone."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from support.people import Person, person
from support.served import Served, served


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("always") / "home") as running:
        yield running


def signed_in(gateway: Served, name: str, *roles: str) -> Person:
    somebody = person(gateway, name, *roles)
    somebody.sign_in()
    return somebody


def held(gateway: Served, tool: str = "send_email", **arguments: str) -> str:
    answer = gateway.decide(tool, arguments=arguments)
    assert answer.status == 202, answer.body
    approval: str = answer.json["approval"]["id"]
    return approval


def approve(gateway: Served, approval: str) -> None:
    shown = gateway.ask("GET", f"/v1/approvals/{approval}", key="ann").json
    given = {name: shown[name] for name in ("call_digest", "policy_digest")} | {"decision": "approve"}
    assert gateway.ask("POST", f"/v1/approvals/{approval}", given, key="ann").status == 200


def test_the_page_proposes_shows_and_has_an_administrator_write(gateway: Served) -> None:
    dana, root = signed_in(gateway, "dana", "approver", "auditor"), signed_in(gateway, "rose", "approver", "admin")
    for name in ("ada", "bob", "joe"):
        approval = held(gateway, to=f"{name}@example.com")
        assert b"Always let them run" not in dana.get(f"/approvals/{approval}").body
        approve(gateway, approval)
    other = held(gateway, to="eve@example.com")
    page = f"/approvals/{other}/always"
    assert f'href="{page}"' in dana.get(f"/approvals/{other}").body.decode()
    shown = dana.get(page).body.decode()
    assert "3 that people approved, and 1 other." in shown
    assert "Put it in force" not in shown
    (digest,) = re.findall(r'name="digest" value="([^"]+)"', root.get(page).body.decode())
    form = {"digest": digest, "reason": "our own customers", "days": "7"}
    assert dana.post(page, form).status == 403
    assert gateway.ask("POST", f"/v1{page}", {"digest": digest, "reason": "x"}, key="ann").status == 403
    assert root.post(page, form | {"reason": " "}).status == 422
    assert root.post(page, form | {"days": "4000"}).status == 422
    assert root.post(page, form | {"digest": "sha-256:" + "0" * 64}).status == 409
    assert gateway.decide("send_email", arguments={"to": "zoe@example.com"}).status == 202
    assert root.post(page, form).status == 303
    assert gateway.decide("send_email", arguments={"to": "zoe@example.com"}).json["decision"] == "allow"
    assert gateway.decide("send_email", arguments={"to": "zoe@example.org"}).status == 202
    assert "our own customers" in root.get("/policies").body.decode()


def test_signs_of_an_attack_propose_nothing_however_often_they_were_approved(gateway: Served) -> None:
    for number in range(4):
        approval = held(gateway, "cmd", command=rf"schtasks /create /tn up /sc onlogon /tr C:\x\a{number}.exe")
        approve(gateway, approval)
    found = gateway.ask("GET", f"/v1/approvals/{approval}/always", key="ann").json
    assert (found["digest"], found["approved"]) == (None, [])


def test_a_canary_among_such_calls_is_blocked_whatever_stands_in_the_rule(gateway: Served) -> None:
    for name in ("ada", "bob", "joe"):
        approval = held(gateway, to=f"{name}@example.net")
        approve(gateway, approval)
    target = f"/v1/approvals/{approval}/always"
    digest = gateway.ask("GET", target, key="ann").json["digest"]
    canary = gateway.ask("POST", "/v1/canaries", {"kind": "email"}, key="root").json
    assert gateway.ask("POST", target, {"digest": digest, "reason": "routine"}, key="root").status == 200
    touched = gateway.decide("send_email", arguments={"to": canary["value"]}, session="s-canary").json
    assert touched["decision"] == "block"
