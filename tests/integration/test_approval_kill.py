"""`kill -9` at every station of a held call: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from aegis.bootstrap.state import open_state
from support.processes import CONFIG, Process, gateway_process
from support.served import Credentials

MAIL = {"to": "a@example.com", "body": "hello"}


def ask(gateway: Process, key: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=20)) as connection:
        headers = {"authorization": f"Bearer {key}"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


@pytest.mark.claim("APR-17")
def test_a_held_call_survives_the_death_of_every_gateway_it_meets(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "aegis.yaml").write_text(CONFIG)
    (home / "aegis.yaml").chmod(0o600)
    with closing(open_state(home / "aegis.yaml", home)) as state:
        people = Credentials(state.store)
        people.add("ann", "approver")
        people.add("caller", "agent", agent="caller")
    ann, bot = people.text("ann"), people.text("caller")
    call = {"tool": "send_email", "arguments": MAIL, "call_id": "k-1"}
    with gateway_process(home) as gateway:
        status, held = ask(gateway, bot, "POST", "/v1/decisions", call)
        assert status == 202
        gateway.process.kill()
    approval = held["approval"]["id"]
    with gateway_process(home) as gateway:
        status, again = ask(gateway, bot, "POST", "/v1/decisions", call)
        assert (status, again["approval"]["id"]) == (202, approval)
        status, shown = ask(gateway, ann, "POST", f"/v1/approvals/{approval}", {"decision": "approve"})
        assert (status, shown["state"]) == (200, "approved")
        gateway.process.kill()
    with gateway_process(home) as gateway:
        assert ask(gateway, ann, "POST", f"/v1/approvals/{approval}", {"decision": "deny"})[0] == 409
        swapped = {**call, "arguments": {**MAIL, "to": "b@example.com"}}
        assert ask(gateway, bot, "POST", "/v1/decisions", swapped)[0] == 409
        status, runs = ask(gateway, bot, "POST", "/v1/decisions", call)
        assert (status, runs["decision"]) == (200, "allow")
        gateway.process.kill()
    with gateway_process(home) as gateway:
        status, twice = ask(gateway, bot, "POST", "/v1/decisions", call)
        assert (twice["decision"], "permit" in twice) == ("block", False)
        body = {"permit": runs["permit"], "tool": "send_email", "arguments": MAIL}
        assert ask(gateway, bot, "POST", "/v1/permits/verify", body)[0] == 200
        gateway.process.kill()
    with gateway_process(home) as gateway:
        assert ask(gateway, bot, "POST", "/v1/permits/verify", body)[0] == 409
