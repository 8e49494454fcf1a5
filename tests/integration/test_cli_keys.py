"""`aegis keys` and `aegis serve`: a key works from the moment it is printed until it is revoked."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from support.deployments import deployment
from support.shell import aegis, gateway, read_json

CALL = json.dumps({"tool": "read_file", "arguments": {"path": "notes.txt"}})


def create(home: Path, *arguments: str) -> str:
    finished = aegis("keys", "create", "--home", home, *arguments)
    assert finished.returncode == 0
    (line,) = finished.stdout.splitlines()
    return line


def decide(url: str, key: str) -> int:
    return aegis("decide", "-", stdin=CALL, env={"AEGIS_URL": url, "AEGIS_API_KEY": key}).returncode


def test_a_key_made_beside_a_running_gateway_works_at_once_until_it_is_revoked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as running:
        key = create(home, "--role", "agent", "--agent", "bot")
        assert decide(running.url, key) == 0
        (row,) = read_json(aegis("keys", "list", "--home", home, "--json"))["items"]
        assert (row["principal"], row["roles"], row["state"]) == ("agent:bot", ["agent"], "active")
        assert aegis("keys", "revoke", row["id"], "--home", home).returncode == 0
        assert decide(running.url, key) == 2
        assert running.stop() == 0


def test_a_key_carries_several_roles_and_is_kept_as_a_hash(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = create(home, "--role", "agent", "--role", "auditor", "--agent", "bot")
    shown = read_json(aegis("keys", "list", "--home", home, "--json"))["items"][0]
    assert shown["roles"] == ["agent", "auditor"]
    secret = key.split("_", 2)[2].encode()
    for file in home.rglob("*"):
        if file.is_file():
            assert secret not in file.read_bytes()
            assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


@pytest.mark.parametrize(
    "arguments", [[], ["--role", "nobody"], ["--role", "agent"], ["--role", "auditor", "--name", "agent:bot"]]
)
def test_a_key_that_cannot_be_is_misuse(tmp_path: Path, arguments: list[str]) -> None:
    finished = aegis("keys", "create", "--home", tmp_path / "home", *arguments)
    assert finished.returncode == 2
    assert finished.stdout == ""


def test_an_unknown_key_cannot_be_revoked(tmp_path: Path) -> None:
    home = tmp_path / "home"
    create(home, "--role", "auditor")
    assert aegis("keys", "revoke", "abc", "--home", home).returncode == 2


def test_a_key_is_limited_to_its_tools(tmp_path: Path) -> None:
    home = tmp_path / "home"
    key = create(home, "--role", "agent", "--agent", "bot", "--tool", "write_*")
    with gateway(home) as running:
        assert decide(running.url, key) == 1


def test_making_and_revoking_keys_is_on_the_record(tmp_path: Path) -> None:
    home = tmp_path / "home"
    create(home, "--role", "auditor", "--name", "ada")
    key_id = read_json(aegis("keys", "list", "--home", home, "--json"))["items"][0]["id"]
    aegis("keys", "revoke", key_id, "--home", home)
    aegis("keys", "revoke", key_id, "--home", home)
    running = deployment(home)
    try:
        with running.store.reader() as reader:
            grants = [
                body
                for entry in reader.entries(0, reader.head().size)
                if (body := json.loads(entry.body))["kind"] == "grant"
            ]
    finally:
        running.close()
    assert [(grant["action"], grant["key"]["kid"]) for grant in grants] == [("create", key_id), ("revoke", key_id)]
    assert grants[0]["key"]["holder"] == "ada"


@pytest.mark.parametrize("arguments", [["receipt"], ["receipt", "--agent", "bot"], ["permit"]])
def test_a_key_rotated_under_a_running_gate_is_used_from_then_on(tmp_path: Path, arguments: list[str]) -> None:
    home = tmp_path / "home"
    running = deployment(home)
    call = ToolCall(tool="read_file", arguments={"path": "notes.txt"})
    try:
        assert running.gate.decide(call).outcome is Outcome.ALLOW
        rotated = read_json(aegis("keys", "rotate", *arguments, "--home", home, "--json"))
        assert running.gate.decide(call).outcome is Outcome.ALLOW
        with running.store.reader() as reader:
            last = reader.entry(reader.head().size - 1)
            assert last is not None
            signed_by = json.loads(last.body)["sig"]["kid"]
    finally:
        running.close()
    assert (signed_by == rotated["kid"]) is ("--agent" in arguments)
    checks = {one["check"]: one for one in read_json(aegis("doctor", "--home", home, "--json"))["checks"]}
    assert checks["log"]["state"] == "ok"


def test_a_gateway_refuses_to_listen_elsewhere_in_the_clear(tmp_path: Path) -> None:
    finished = aegis("serve", "--home", tmp_path / "home", "--host", "0.0.0.0", "--port", "0")
    assert finished.returncode == 2
    assert "unencrypted" in finished.stderr


def test_a_gateway_does_not_start_on_a_configuration_that_does_not_compile(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("version: 1\nprofil: strict\n")
    finished = aegis("serve", "--home", tmp_path / "home", "--config", file, "--port", "0")
    assert finished.returncode == 2
    assert f"{file}:2: " in finished.stderr
