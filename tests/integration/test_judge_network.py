"""A judge's programs reach the hosts of its file and no others, out of a sandbox that has no network."""

from __future__ import annotations

import json
import os
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from support.deployments import deployment
from support.scripted_model import GOOD, scripted_model
from support.shell import aegis

PROGRAMS = sorted({os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix)})
CHECK = """
import json, os, socket, sys
json.load(sys.stdin)
def through(target):
    return raw(f"CONNECT {target} HTTP/1.1")
def raw(line):
    proxy = os.environ.get("HTTPS_PROXY")
    if not proxy:
        return "no proxy"
    with socket.create_connection(("127.0.0.1", int(proxy.rpartition(":")[2])), 60) as way:
        way.sendall(line.encode() + b"\\r\\n\\r\\n")
        said = way.recv(4096).decode()
        if " 200 " not in said:
            return said.split()[1]
        way.sendall(b"hello\\n")
        return way.recv(4096).decode().strip()
def straight(host, port):
    try:
        socket.create_connection((host, port), 5).close()
    except OSError:
        return "unreachable"
    return "reached"
said = SAID
data = {"score": 0.0, "confidence": 1.0, "reasoning": json.dumps(said), "signals": [], "metadata": {}}
os.write(int(os.environ["AEGIS_RESULT_FD"]), json.dumps(data).encode())
"""


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"heard " + self.rfile.readline())


@pytest.fixture
def port() -> Iterator[int]:
    """A server on this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def said_by(home: Path, network: list[str], said: str) -> str:
    """What the judge's program said it saw."""
    home.mkdir(mode=0o700)
    (home / "check.py").write_text(CHECK.replace("SAID", said))
    (home / "check.yaml").write_text(
        f"name: check\ncommand: [{sys.executable}, -B, check.py]\nprograms: {json.dumps(PROGRAMS)}\n"
        f"network: {json.dumps(network)}\n"
    )
    running = deployment(home, "version: 1\nlimits: {rate: unlimited}\njudges: [{name: check, judge: check.yaml}]\n")
    decision = running.gate.decide(ToolCall(tool="note", arguments={}))
    running.close()
    assert decision.outcome is Outcome.BLOCK
    return decision.message


def test_a_listed_host_is_reached_and_no_other(tmp_path: Path, port: int) -> None:
    asked = [f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}", "127.0.0.1:443", "example.com:443", f"127.0.0.2:{port}"]
    said = said_by(tmp_path / "home", [f"127.0.0.1:{port}"], f"[through(one) for one in {asked}]")
    assert '["heard hello", "403", "403", "403", "403"]' in said


def test_there_is_no_way_round_the_door(tmp_path: Path, port: int) -> None:
    said = said_by(
        tmp_path / "home", [f"127.0.0.1:{port}"], f'[straight("127.0.0.1", {port}), straight("1.1.1.1", 53)]'
    )
    assert '["unreachable", "unreachable"]' in said


def test_a_name_that_leads_to_this_machine_is_not_reached(tmp_path: Path, port: int) -> None:
    assert '"502"' in said_by(tmp_path / "home", [f"localhost:{port}"], f'through("localhost:{port}")')


@pytest.mark.parametrize("request_line", ["GET http://127.0.0.1/ HTTP/1.1", "CONNECT 127.0.0.1 HTTP/1.1", "CONNECT"])
def test_only_a_connection_can_be_asked_for(tmp_path: Path, port: int, request_line: str) -> None:
    said = f"raw({request_line!r})"
    assert '"403"' in said_by(tmp_path / "home", [f"127.0.0.1:{port}"], said)


def test_without_a_list_there_is_neither_network_nor_door(tmp_path: Path, port: int) -> None:
    said = said_by(
        tmp_path / "home", [], f'[through("x:1"), straight("127.0.0.1", {port}), os.path.exists("/aegis/door")]'
    )
    assert '["no proxy", "unreachable", false]' in said


@pytest.mark.parametrize("entry", ["https://example.com", "*.example.com", "example.com/x", "a b", "host:0", ""])
def test_what_is_no_host_is_refused_at_start(tmp_path: Path, entry: str) -> None:
    (tmp_path / "check.yaml").write_text(f"name: check\ncommand: ['true']\nnetwork: {json.dumps([entry])}\n")
    (tmp_path / "aegis.yaml").write_text("version: 1\njudges: [{name: check, judge: check.yaml}]\n")
    checked = aegis("config", "check", tmp_path / "aegis.yaml")
    assert checked.returncode == 2
    assert "a host is `NAME` or `NAME:PORT`" in checked.stderr


def test_the_whole_network_is_not_one_host_among_others(tmp_path: Path) -> None:
    (tmp_path / "check.yaml").write_text("name: check\ncommand: ['true']\nnetwork: ['*', example.com]\n")
    (tmp_path / "aegis.yaml").write_text("version: 1\njudges: [{name: check, judge: check.yaml}]\n")
    assert "`*` alone" in aegis("config", "check", tmp_path / "aegis.yaml").stderr


def test_commands_of_a_model_have_the_door_as_well(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with scripted_model() as model:
        (home / "look.yaml").write_text(
            f"name: look\nmodel: {model.openai}\ntools: {{cmd.run: [printenv]}}\nnetwork: [registry.example.com]\n"
        )
        asked = ("cmd.run", {"command": ["printenv", "HTTPS_PROXY"]})
        model.script = lambda said: GOOD if len(said["messages"]) > 2 else [asked]
        config = "version: 1\nlimits: {rate: unlimited}\njudges: [{name: look, judge: look.yaml}]\n"
        running = deployment(home, config)
        assert running.gate.decide(ToolCall(tool="note", arguments={})).outcome is Outcome.ALLOW
        assert "http://127.0.0.1:" in model.last()
        running.close()
