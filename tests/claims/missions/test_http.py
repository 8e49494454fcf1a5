"""Missions over a real gateway, as an issuer, an agent and its host use them."""

from __future__ import annotations

import base64
import json
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.missions.holder import Holder
from support.shell import RunningGateway, aegis
from support.shell import gateway as running

CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools: {read_file: {risk: low, effects: [read]}}
"""

EXPIRES = int(time.time()) + 3600
"""When every mission here ends: one moment, as a child that ended a second after its parent would be refused."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway, and the key of its agent `bot`."""

    running: RunningGateway
    key: str


def create_key(home: Path, *options: str) -> str:
    return aegis("keys", "create", "--home", home, *options).stdout.strip()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    home = tmp_path_factory.mktemp("http") / "home"
    home.mkdir(mode=0o700)
    file = home / "aegis.yaml"
    file.write_text(CONFIG)
    file.chmod(0o600)
    key = create_key(home, "--role", "agent", "--agent", "bot")
    with running(home, "--config", file) as started:
        yield Gateway(running=started, key=key)


@pytest.fixture(scope="module")
def issuer(gateway: Gateway) -> str:
    return create_key(gateway.running.home, "--role", "issuer", "--role", "auditor")


def ask(gateway: Gateway, key: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    method = "GET" if body is None and not path.endswith(":challenge") else "POST"
    request = urllib.request.Request(f"{gateway.running.url}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answered:
            return answered.status, json.load(answered)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def mission(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "sub": "bot",
        "purpose": "read reports",
        "exp": EXPIRES,
        "tools": {"allow": ["read_file"]},
        "effects": ["read"],
        "scope": {"paths": ["glob:/ws/**"]},
    }
    return {**base, **changes}


def issue(gateway: Gateway, issuer: str, **changes: Any) -> str:
    status, answered = ask(gateway, issuer, "/v1/missions", {"mission": mission(**changes)})
    assert status == 201, answered
    return str(answered["mission_id"])


def test_a_session_under_a_mission_is_held_to_it(gateway: Gateway, issuer: str) -> None:
    opening = {"session": "h-1", "mission": issue(gateway, issuer), "task": "read"}
    assert ask(gateway, gateway.key, "/v1/sessions", opening)[0] == 201
    call = {"tool": "read_file", "session": "h-1", "arguments": {"path": "/ws/a"}}
    assert ask(gateway, gateway.key, "/v1/decisions", call)[1]["decision"] == "allow"
    call["arguments"] = {"path": "/srv/a"}
    assert ask(gateway, gateway.key, "/v1/decisions", call)[1]["reason"] == "scope_violation"
    call["arguments"] = {"path": "{path}"}
    assert ask(gateway, gateway.key, "/v1/decisions", call)[1]["missing"] == ["/path"]


def test_a_validation_error_names_the_member(gateway: Gateway, issuer: str) -> None:
    status, answered = ask(gateway, issuer, "/v1/missions", {"mission": mission(scope={"path": []})})
    assert status == 422
    assert "scope" in answered["error"]["message"] + answered["error"]["hint"]


def test_an_agents_key_issues_and_revokes_nothing(gateway: Gateway, issuer: str) -> None:
    assert ask(gateway, gateway.key, "/v1/missions", {"mission": mission()})[0] == 403
    assert ask(gateway, gateway.key, f"/v1/missions/{issue(gateway, issuer)}/revoke", {})[0] == 403


def test_the_holder_of_a_key_opens_its_session_and_proves_its_calls(
    gateway: Gateway, issuer: str, tmp_path: Path
) -> None:
    holder = Holder(tmp_path / "keys", "bot")
    file = next((tmp_path / "keys").rglob("*.key"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    wanted = issue(gateway, issuer, cnf=holder.confirmation(), evidence=["session_proof", "call_proof"])
    opening = {"session": "h-2", "mission": wanted}
    assert ask(gateway, gateway.key, "/v1/sessions", opening)[1]["error"]["code"] == "proof_invalid"
    status, challenge = ask(gateway, gateway.key, "/v1/sessions:challenge")
    assert status == 201
    audience = challenge["audience"]
    opening["proof"] = holder.answer(audience=audience, nonce=challenge["nonce"], mission_id=wanted, session="h-2")
    assert ask(gateway, gateway.key, "/v1/sessions", opening)[0] == 201
    prover = holder.prover(audience=audience, session="h-2")
    for _ in range(3):
        call = prover.prove(ToolCall(tool="read_file", arguments={"path": "/ws/a"}))
        body = {"tool": call.tool, "arguments": call.arguments, "session": call.session, "proof": call.proof}
        assert ask(gateway, gateway.key, "/v1/decisions", body)[1]["decision"] == "allow"
    assert ask(gateway, gateway.key, "/v1/decisions", body)[1]["reason"] == "proof_invalid"


def test_delegation_and_revocation_reach_the_next_call(gateway: Gateway, issuer: str) -> None:
    root = issue(gateway, issuer, delegation={"depth": 1, "subjects": ["bot"]})
    wider = {"request_id": "w", "mission": mission(effects=["read", "write"])}
    status, answered = ask(gateway, issuer, f"/v1/missions/{root}/delegate", wider)
    assert (status, answered["error"]["code"]) == (422, "attenuation")
    asked = {"request_id": "r", "mission": mission()}
    status, child = ask(gateway, issuer, f"/v1/missions/{root}/delegate", asked)
    assert status == 201
    assert ask(gateway, issuer, f"/v1/missions/{root}/delegate", asked)[0] == 200
    opening = {"session": "h-3", "mission": child["mission_id"]}
    assert ask(gateway, gateway.key, "/v1/sessions", opening)[0] == 201
    call = {"tool": "read_file", "session": "h-3", "arguments": {"path": "/ws/a"}}
    assert ask(gateway, gateway.key, "/v1/decisions", call)[1]["decision"] == "allow"
    assert ask(gateway, issuer, f"/v1/missions/{root}/revoke", {"reason": "done"})[0] == 200
    assert ask(gateway, gateway.key, "/v1/decisions", call)[1]["reason"] == "revoked"
    assert ask(gateway, issuer, f"/v1/missions/{root}")[1]["state"] == "revoked"


def test_a_session_and_a_receipt_are_attested_over_http(gateway: Gateway, issuer: str) -> None:
    opening = {"session": "h-4", "mission": issue(gateway, issuer)}
    assert ask(gateway, gateway.key, "/v1/sessions", opening)[0] == 201
    call = {"tool": "read_file", "session": "h-4", "arguments": {"path": "/srv/secret-name"}}
    decision = ask(gateway, gateway.key, "/v1/decisions", call)[1]["decision_id"]
    status, own = ask(gateway, gateway.key, "/v1/sessions/h-4/attestation")
    assert status == 200 and claims_of(own["attestation"])["verdicts"] == {"violation": 1}
    principal = claims_of(own["attestation"])["principal"]
    assert ask(gateway, issuer, f"/v1/sessions/h-4/attestation?principal={principal}")[0] == 200
    assert ask(gateway, gateway.key, "/v1/sessions/h-4/attestation?principal=other")[0] == 403
    assert ask(gateway, gateway.key, "/v1/sessions/nothing/attestation")[0] == 404
    public = claims_of(ask(gateway, gateway.key, f"/v1/receipts/{decision}/projection")[1]["projection"])
    assert public["receipt"]["reason"] == "scope_violation" and "guards" not in public["receipt"]
    assert "secret-name" not in json.dumps(public)
    assert ask(gateway, gateway.key, f"/v1/receipts/{decision}/projection?view=audit")[0] == 403
    status, audit = ask(gateway, issuer, f"/v1/receipts/{decision}/projection?view=audit")
    assert status == 200 and claims_of(audit["projection"])["leaf_hash"] == public["leaf_hash"]


def claims_of(token: str) -> Any:
    body = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
