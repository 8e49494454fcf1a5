"""Keys are replaced with the log's endorsement; a log verifies across the change, and a crash loses no key."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from aegis.bootstrap import open_state
from aegis.core.call import ToolCall, ToolResult
from aegis.keys.keyring import previous_path, replaced
from support.deployments import deployment
from support.served import served
from support.shell import aegis, read_json


def log_of(home: Path) -> None:
    """A few calls, on record."""
    running = deployment(home)
    for number in range(3):
        running.gate.decide(ToolCall(tool="read_file", arguments={"path": f"{number}.txt"}))
    running.close()


def verify(home: Path, out: Path, keys: Path, *more: str) -> subprocess.CompletedProcess[str]:
    assert aegis("log", "export", "--out", out, "--home", home).returncode == 0
    return aegis("log", "verify", out, "--key", keys, *more)


def kept(home: Path, file: Path) -> Path:
    file.write_text(aegis("keys", "public", "--home", home).stdout)
    return file


@pytest.mark.parametrize("spelled", [("log",), ("--log",)])
def test_a_log_verifies_across_a_change_of_its_own_key(tmp_path: Path, spelled: tuple[str, ...]) -> None:
    home = tmp_path / "home"
    log_of(home)
    before = kept(home, tmp_path / "before.json")
    (tmp_path / "since").write_text(aegis("log", "checkpoint", "--home", home).stdout)
    rotated = aegis("keys", "rotate", *spelled, "--home", home, "--json")
    assert rotated.returncode == 0, rotated.stderr
    log_of(home)
    assert aegis("keys", "rotate", "receipt", "--home", home).returncode == 0
    after = kept(home, tmp_path / "after.json")
    listed = [key for key in orjson.loads(after.read_bytes())["keys"] if key["purpose"] == "log"]
    assert [key["kid"] for key in listed][1:] == [read_json(rotated)["kid"]]
    assert "until" in listed[0] and "until" not in listed[1]
    for keys in (before, after):
        told = verify(home, tmp_path / f"out-{keys.stem}", keys, "--since", str(tmp_path / "since"))
        assert told.returncode == 0, told.stdout + told.stderr


def test_only_one_key_is_rotated_at_a_time(tmp_path: Path) -> None:
    log_of(tmp_path / "home")
    for options in ((), ("permit", "--log"), ("permit", "--agent", "bot")):
        assert aegis("keys", "rotate", *options, "--home", tmp_path / "home").returncode == 2


def test_a_running_gateway_signs_checkpoints_with_the_new_key(tmp_path: Path) -> None:
    with served(tmp_path / "home") as gateway:
        gateway.decide()
        assert aegis("keys", "rotate", "log", "--home", tmp_path / "home").returncode == 0
        note = gateway.ask("GET", "/v1/log/checkpoint", key="auditor").body
        gateway.decide()
        keys = kept(tmp_path / "home", tmp_path / "keys.json")
        out = tmp_path / "out"
        assert aegis("log", "export", "--out", out, "--home", tmp_path / "home").returncode == 0
        (tmp_path / "note").write_bytes(note)
        told = aegis("log", "verify", out, "--key", keys, "--since", tmp_path / "note")
        assert told.returncode == 0, told.stdout


DYING = """
import os, sys
from pathlib import Path
from aegis.bootstrap import open_state
import aegis.bootstrap.introduce as introduce
state = open_state(None, Path(sys.argv[1]))
before = introduce._endorsed
def die(*args, **more):
    if sys.argv[3] == "early":
        os._exit(9)
    return before(*args, **more)
introduce._endorsed = die
if sys.argv[3] == "late":
    state.introductions.settle = lambda: os._exit(9)
state.introductions.rotate(sys.argv[2])
"""


@pytest.mark.parametrize("purpose", ["log", "receipt", "permit"])
@pytest.mark.parametrize("when", ["early", "late"])
def test_a_process_that_dies_while_it_rotates_leaves_a_log_that_goes_on(
    tmp_path: Path, purpose: str, when: str
) -> None:
    home = tmp_path / "home"
    log_of(home)
    before = kept(home, tmp_path / "before.json")
    file = home / "keys" / f"{purpose}.key"
    old = file.read_bytes()
    died = subprocess.run([sys.executable, "-c", DYING, str(home), purpose, when], timeout=60, check=False)
    assert died.returncode == 9
    assert previous_path(file).read_bytes() == old
    open_state(None, home).close()
    assert not replaced(home / "keys")
    assert (file.read_bytes() == old) is (when == "early")
    log_of(home)
    told = verify(home, tmp_path / "out", before)
    assert told.returncode == 0, told.stdout


def test_a_configuration_that_others_can_write_does_not_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    log_of(home)
    (home / "aegis.yaml").chmod(0o666)
    refused = aegis("decide", "-", "--home", home, stdin='{"tool": "read_file", "arguments": {}}')
    assert refused.returncode == 2
    assert "others can write" in refused.stderr


def test_gateways_of_several_machines_sign_with_agents_keys_that_the_log_knows(tmp_path: Path) -> None:
    """Each machine makes its own key for an agent, and what it signs first can be a result or the end of a session."""
    config = f"version: 1\nstore: 'sqlite:///{tmp_path / 'shared.db'}'\n"
    one = deployment(tmp_path / "one", config)
    shutil.copytree(tmp_path / "one" / "keys", tmp_path / "two" / "keys")
    shutil.copytree(tmp_path / "one" / "keys", tmp_path / "three" / "keys")
    calls = [ToolCall(tool="read_file", arguments={"path": f"{number}.txt"}, session="s") for number in range(2)]
    told = [one.gate.decide(call) for call in calls]
    two, three = deployment(tmp_path / "two", config), deployment(tmp_path / "three", config)
    two.gate.observe(ToolResult(decision_id=told[0].decision_id, result="the first"))
    three.gate.end_session("s")  # of the second call nobody knows what it did
    for place in (one, two, three):
        place.close()
    done = verify(tmp_path / "one", tmp_path / "out", kept(tmp_path / "one", tmp_path / "keys.json"))
    assert done.returncode == 0, done.stdout + done.stderr
