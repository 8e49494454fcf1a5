"""Permits: minted when they are asked for, demanded or earned; redeemed once, for exactly one call."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import aegis
from aegis.enforce.scope import permit_context
from aegis.keys.permits import OfflinePermits
from support.served import Answer, Served, served
from support.threads import together

MAIL = {"to": "a@example.com", "body": "hello"}
CONFIG = """version: 1
profile: standard
limits: {rate: unlimited}
tools:
  read_file: {risk: low, effects: [read]}
  send_email: {risk: high, irreversible: true, effects: [external_send]}
  transfer: {risk: medium, permit: true}
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("permits") / "home", CONFIG) as running:
        running.credentials.add("mailer", "tool")
        running.credentials.add("reader", "tool", tools=("read_file",))
        yield running


def allowed(gateway: Served, call_id: str, tool: str = "read_file", **members: Any) -> str:
    answer = gateway.decide(tool, call_id=call_id, **{"arguments": {"path": "/a"}, "want_permit": True, **members})
    assert (answer.status, answer.json["decision"]) == (200, "allow")
    permit: str = answer.json["permit"]
    return permit


def verify(gateway: Served, permit: str, tool: str = "read_file", key: str = "mailer", **members: Any) -> Answer:
    body = {"permit": permit, "tool": tool, "arguments": {"path": "/a"}, **members}
    return gateway.ask("POST", "/v1/permits/verify", body, key=key)


def claims(permit: str) -> dict[str, Any]:
    part = permit.split(".")[1]
    value: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return value


def test_a_permit_is_minted_when_asked_for_demanded_or_approved_and_never_else(gateway: Served) -> None:
    assert "permit" not in gateway.decide("read_file", call_id="m-0", arguments={"path": "/a"}).json
    found = claims(allowed(gateway, "m-1", session="s-1"))
    assert (found["tool"], found["sub"], found["session"], found["exp"] - found["iat"]) == (
        "read_file",
        "bot",
        "s-1",
        60,
    )
    assert claims(gateway.decide("transfer", call_id="m-2").json["permit"])["tool"] == "transfer"
    blocked = gateway.decide("read_file", call_id="m-3", arguments={"path": "/etc/shadow"}, want_permit=True).json
    assert blocked["decision"] == "block"
    assert "permit" not in blocked


def test_a_permit_is_redeemed_once_and_for_its_call_alone(gateway: Served) -> None:
    permit = allowed(gateway, "v-1")
    for other in ({"arguments": {"path": "/b"}}, {"tool": "read_files"}, {"server": "mcp:files"}):
        answer = verify(gateway, permit, **other)
        assert (answer.status, answer.code) == (403, "permit_other_call")
    answer = verify(gateway, permit)
    assert (answer.status, answer.json) == (200, {"valid": True, "permit_id": claims(permit)["jti"]})
    again = verify(gateway, permit)
    assert (again.status, again.code) == (409, "permit_redeemed")
    receipts = gateway.ask("GET", "/v1/receipts?kind=redemption", key="auditor").json["items"]
    assert receipts[0]["permit_id"] == claims(permit)["jti"]


def test_of_many_redemptions_at_once_one_counts(gateway: Served) -> None:
    permit = allowed(gateway, "race-1")
    statuses: list[int] = []
    together(8, lambda: statuses.append(verify(gateway, permit).status))
    assert sorted(statuses) == [200] + [409] * 7


def test_a_repeated_call_gets_the_same_permit_until_it_is_redeemed(gateway: Served) -> None:
    first = allowed(gateway, "rep-1")
    second = allowed(gateway, "rep-1")
    assert claims(first)["jti"] == claims(second)["jti"]
    assert verify(gateway, second).status == 200
    assert verify(gateway, first).status == 409
    after = gateway.decide("read_file", call_id="rep-1", arguments={"path": "/a"}, want_permit=True).json
    assert (after["decision"], "permit" in after) == ("allow", False)


def test_a_credential_speaks_for_its_own_tools(gateway: Served) -> None:
    permit = gateway.decide("transfer", call_id="aud-1", arguments={"path": "/a"}).json["permit"]
    refused = verify(gateway, permit, "transfer", key="reader")
    assert (refused.status, refused.code) == (403, "forbidden")
    assert verify(gateway, permit, "transfer", key="auditor").status == 403
    assert gateway.ask("POST", "/v1/permits/verify", {}, key=None).status == 401
    assert verify(gateway, permit, "transfer").status == 200


@pytest.mark.parametrize("mangled", ["", "x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."])
def test_what_is_no_permit_of_ours_is_refused(gateway: Served, mangled: str) -> None:
    assert verify(gateway, mangled or "x.y.z").status == 403
    good = allowed(gateway, f"forge-{mangled}")
    head, body, signature = good.split(".")
    forged = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    forged["jti"] = "0" * 32
    changed = base64.urlsafe_b64encode(json.dumps(forged).encode()).rstrip(b"=").decode()
    assert verify(gateway, f"{head}.{changed}.{signature}").status == 403


def test_a_stopped_agents_permits_are_void(gateway: Served) -> None:
    gateway.credentials.add("temp", "agent", agent="temp")
    answer = gateway.decide("read_file", call_id="x", arguments={"path": "/a"}, want_permit=True, key="temp")
    gateway.ask("POST", "/v1/agents/temp/revoke", {"reason": "odd"}, key="root")
    refused = verify(gateway, answer.json["permit"])
    assert (refused.status, refused.code) == (409, "permit_revoked")


def test_a_permit_of_an_observed_call_opens_nothing(tmp_path: Path) -> None:
    config = "version: 1\nprofile: observe\nlimits: {rate: unlimited}\n"
    with served(tmp_path / "home", config) as gateway:
        gateway.credentials.add("mailer", "tool")
        permit = allowed(gateway, "o-1")
        assert claims(permit)["mode"] == "observe"
        refused = verify(gateway, permit)
        assert (refused.status, refused.code) == (403, "permit_observed")


def test_a_tool_refuses_to_run_without_a_permit_for_these_arguments(gateway: Served) -> None:
    ran: list[dict[str, Any]] = []
    tool = aegis.Client(f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("mailer"))

    @aegis.require_permit(verifier=tool)
    def read_file(path: str) -> str:
        ran.append({"path": path})
        return "text"

    with pytest.raises(aegis.PermitInvalid, match="only with a permit"):
        read_file("/a")
    permit = allowed(gateway, "tool-1")
    with pytest.raises(aegis.PermitInvalid, match="another call"):
        read_file("/b", permit=permit)
    assert read_file("/a", permit=permit) == "text"
    with pytest.raises(aegis.PermitInvalid) as used:
        read_file("/a", permit=permit)
    assert used.value.status == 409
    assert ran == [{"path": "/a"}]
    tool.close()


def test_an_async_tool_refuses_as_well_and_so_does_one_whose_gateway_is_gone(gateway: Served) -> None:
    tool = aegis.Client(f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("mailer"))
    gone = aegis.Client("http://127.0.0.1:9", api_key="k")

    @aegis.require_permit(verifier=tool, name="read_file")
    async def reads(path: str) -> str:
        return path

    @aegis.require_permit(verifier=gone, name="read_file")
    async def reads_blindly(path: str) -> str:
        return path

    async def run() -> None:
        permit = allowed(gateway, "atool-1")
        with pytest.raises(aegis.PermitInvalid, match="could not be redeemed"):
            await reads_blindly("/a", permit=permit)
        assert await reads("/a", permit=permit) == "/a"
        with permit_context(permit), pytest.raises(aegis.PermitInvalid):
            await reads("/a")

    asyncio.run(run())
    tool.close()


def test_a_permit_finds_its_way_from_protect_to_the_tool(gateway: Served) -> None:
    aegis.auto(
        url=f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("bot"), agent="bot", on_unhooked="warn"
    )
    try:

        @aegis.protect
        @aegis.require_permit
        def read_file(path: str) -> str:
            return f"text of {path}"

        assert read_file("/a") == "text of /a"
        with pytest.raises(aegis.PermitInvalid):  # going round the decision
            read_file.__wrapped__("/a")  # type: ignore[attr-defined]
    finally:
        aegis.unhook()


def test_offline_a_permit_opens_once_per_verifier(gateway: Served) -> None:
    keys = gateway.ask("GET", "/.well-known/jwks.json", key="bot").json
    one, other = OfflinePermits(keys), OfflinePermits(keys)
    permit = allowed(gateway, "off-1")
    with pytest.raises(aegis.PermitInvalid, match="another call"):
        one.redeem(permit, tool="read_file", arguments={"path": "/b"})
    assert one.redeem(permit, tool="read_file", arguments={"path": "/a"}) == claims(permit)["jti"]
    with pytest.raises(aegis.PermitInvalid, match="used here before"):
        one.redeem(permit, tool="read_file", arguments={"path": "/a"})
    other.redeem(permit, tool="read_file", arguments={"path": "/a"})  # what it says: once per verifier
    late = OfflinePermits(keys, clock=lambda: (claims(permit)["exp"] + 1) * 1_000_000)
    with pytest.raises(aegis.PermitInvalid, match="over"):
        late.redeem(permit, tool="read_file", arguments={"path": "/a"})
    with pytest.raises(aegis.PermitInvalid, match="no key"):
        OfflinePermits({"keys": [key for key in keys["keys"] if key["purpose"] != "permit"]})


def test_an_approved_call_is_redeemed_online_alone(gateway: Served) -> None:
    held = gateway.decide("send_email", arguments=MAIL, call_id="appr-1")
    gateway.ask("POST", held.json["approval"]["url"], {"decision": "approve"}, key="ann")
    permit = gateway.decide("send_email", arguments=MAIL, call_id="appr-1").json["permit"]
    keys = gateway.ask("GET", "/.well-known/jwks.json", key="bot").json
    with pytest.raises(aegis.PermitInvalid, match="at the gateway alone"):
        OfflinePermits(keys).redeem(permit, tool="send_email", arguments=MAIL)
    assert verify(gateway, permit, "send_email", arguments=MAIL).status == 200


def test_a_tool_server_behind_the_middleware(gateway: Served) -> None:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route
    from starlette.testclient import TestClient

    ran: list[Any] = []

    async def tool(request: Request) -> JSONResponse:
        ran.append(json.loads(await request.body()))
        return JSONResponse({"ok": True})

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"up": True})

    app = Starlette(routes=[Route("/read", tool, methods=["POST"]), Route("/health", health)])
    client = aegis.Client(f"http://127.0.0.1:{gateway.port}", api_key=gateway.credentials.text("mailer"))
    guarded = aegis.PermitMiddleware(app, verifier=client, tools={"/read": "read_file"}, open_paths=("/health",))
    with TestClient(guarded) as http:
        permit = {"Aegis-Permit": allowed(gateway, "mw-1")}
        assert http.get("/health").json() == {"up": True}
        assert http.post("/read", json={"path": "/a"}).json()["error"]["code"] == "permit_missing"
        assert http.post("/read?path=/b", json={"path": "/a"}, headers=permit).status_code == 403
        assert http.post("/other", json={"path": "/a"}, headers=permit).status_code == 403
        assert http.post("/read", json={"path": "/b"}, headers=permit).status_code == 403
        twice = b'{"path": "/a", "path": "/b"}'
        assert http.post("/read", content=twice, headers=permit).status_code == 422
        assert http.post("/read", json={"path": "/a"}, headers=permit).json() == {"ok": True}
        assert http.post("/read", json={"path": "/a"}, headers=permit).status_code == 409
    assert ran == [{"path": "/a"}]
    client.close()
