"""Canaries: minted, planted, touched, and what follows."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aegis.behaviour.canaries import CANARY_KINDS, HoneyToken, WatchedCanary, make, spelled
from support.served import Served, served
from support.shell import aegis, read_json


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "home") as running:
        yield running


def mint(gateway: Served, kind: str, **more: str) -> dict[str, Any]:
    answer = gateway.ask("POST", "/v1/canaries", {"kind": kind, **more}, key="root")
    assert answer.status == 201
    minted: dict[str, Any] = answer.json
    return minted


def note(gateway: Served, text: str, session: str) -> dict[str, Any]:
    said: dict[str, Any] = gateway.decide("write_note", arguments={"text": text}, session=session).json
    return said


def test_a_call_with_a_canary_is_blocked_and_its_session_contained(gateway: Served) -> None:
    canary = mint(gateway, "aws-key", note="in the vault file")
    assert note(gateway, "hello", "s-1")["decision"] == "allow"
    touched = note(gateway, f"key={canary['value']}", "s-1")
    assert (touched["decision"], touched["reason"], touched["risk"]) == ("block", "attack_detected", "critical")
    assert canary["value"] not in touched["message"]
    assert note(gateway, "hello", "s-1")["reason"] == "revoked"
    assert note(gateway, "hello", "s-2")["decision"] == "allow"
    seen = gateway.ask("GET", "/v1/canaries", key="root").json
    assert [one["session"] for one in seen["touched"]] == ["s-1"]
    assert canary["value"] not in str(seen)


def test_an_encoded_canary_and_a_canary_tool_are_touches_too(gateway: Served) -> None:
    canary = mint(gateway, "api-key")
    tool = mint(gateway, "tool", name="export_all_customers")
    for number, text in enumerate(
        (canary["value"].encode().hex(), base64.b64encode(b"x" + canary["value"].encode() + b"yz").decode())
    ):
        assert note(gateway, text, f"enc-{number}")["decision"] == "block"
    assert gateway.decide(tool["value"], arguments={}, session="t").json["decision"] == "block"


def test_a_result_that_holds_a_canary_contains_the_session_that_read_it(gateway: Served) -> None:
    canary = mint(gateway, "password")
    read = gateway.decide(session="s-1").json
    gateway.ask("POST", "/v1/results", {"decision_id": read["decision_id"], "result": {"text": canary["value"]}})
    assert gateway.decide(session="s-1").json["reason"] == "revoked"
    assert [one["kind"] for one in gateway.ask("GET", "/v1/canaries", key="root").json["touched"]] == ["result"]


def test_a_rotated_canary_is_watched_under_both_values_and_a_retired_one_under_none(gateway: Served) -> None:
    first = mint(gateway, "payee")
    second = gateway.ask("POST", f"/v1/canaries/{first['id']}/rotate", key="root").json
    assert first["value"] != second["value"]
    assert note(gateway, first["value"], "a")["decision"] == "block"
    assert note(gateway, second["value"], "b")["decision"] == "block"
    assert gateway.ask("POST", f"/v1/canaries/{first['id']}/retire", key="root").status == 200
    assert note(gateway, first["value"], "c")["reason"] != "attack_detected"
    assert gateway.ask("POST", f"/v1/canaries/{first['id']}/rotate", key="root").status == 404


def test_only_administrators_mint_and_what_cannot_be_watched_is_refused(gateway: Served) -> None:
    assert gateway.ask("POST", "/v1/canaries", {"kind": "aws-key"}).status == 403
    assert gateway.ask("GET", "/v1/canaries", key="auditor").status == 403
    assert gateway.ask("POST", "/v1/canaries", {"kind": "tool"}, key="root").status == 422
    assert gateway.ask("POST", "/v1/canaries", {"kind": "aws-key", "name": "x"}, key="root").status == 422


def test_one_command_mints_rotates_and_watches(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert aegis("init", "--home", home).returncode == 0
    made = read_json(aegis("canaries", "mint", "--kind", "payee", "--note", "ledger", "--home", home, "--json"))
    assert made["value"].startswith("DE")
    (row,) = read_json(aegis("canaries", "list", "--home", home, "--json"))["items"]
    assert row["value"] != made["value"]
    rotated = read_json(aegis("canaries", "rotate", made["id"], "--home", home, "--json"))
    assert rotated["value"] != made["value"]
    assert aegis("canaries", "watch", "--home", home).returncode == 0
    assert aegis("canaries", "retire", made["id"], "--home", home).returncode == 0


def test_every_kind_is_found_in_every_spelling_and_nothing_else_is() -> None:
    for kind in CANARY_KINDS[:-1]:
        value = make(kind)
        watched = WatchedCanary([HoneyToken(id="1", kind=kind, value=value)])
        for before in (b"", b"a", b"ab"):
            assert watched.is_in(b"{" + base64.b64encode(before + value.encode() + b"tail"))
        assert watched.is_in(b"x" + value.encode() + b"y")
        assert not watched.is_in(make(kind).encode())
        assert all(spelled(value))
