"""Addresses, folders, cards and texts that are written in another way than the usual one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.outcome import Outcome
from aegis.detect.shell.unquote import find_unresolved
from aegis.wire.openai_items import proposed
from support.deployments import deployment
from support.policies import asker, built_in, combined

POLICY = built_in()
ask = asker(POLICY)


@pytest.mark.claim("DET-28")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("fetch", {"url": "169.254.169.254/latest/meta-data"}),
        ("fetch", {"url": "[fd00:ec2::254]/latest"}),
        ("fetch", {"url": "[fd00:ec2::254%25eth0]/latest"}),
        ("fetch", {"url": "metadata.google.internal/computeMetadata"}),
        ("fetch", {"host": "169.254.169.254", "path": "/latest"}),
        ("x", {"q": "169.254.169.254/latest/meta-data"}),
        ("x", {"server": "metadata.google.internal:80"}),
        ("bash", {"command": "curl 2852039166/latest"}),
        ("bash", {"command": "curl --url=0xA9FEA9FE/latest"}),
        ("bash", {"command": "http GET 169.254.43518/latest/"}),
        ("bash", {"command": "curl metadata/computeMetadata/v1/"}),
    ],
)
def test_a_metadata_service_needs_no_scheme(tool: str, arguments: dict[str, Any]) -> None:
    assert ask(tool, **arguments) is Outcome.BLOCK


@pytest.mark.claim("DET-28")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("x", {"q": "172.16.0.4/24"}),
        ("x", {"version": "1.2.3.4"}),
        ("x", {"order": "2852039166"}),
        ("x", {"branch": "metadata"}),
        ("x", {"q": "metadata/labels"}),
        ("x", {"q": "fd00:1234::1"}),
        ("bash", {"command": "git checkout metadata/labels"}),
        ("bash", {"command": "curl https://metadata.example.com/v1"}),
        ("bash", {"command": "ping 10.0.0.1"}),
    ],
)
def test_numbers_and_names_that_are_no_such_address_pass(tool: str, arguments: dict[str, Any]) -> None:
    assert ask(tool, **arguments) is Outcome.ALLOW


@pytest.mark.claim("DET-29")
@pytest.mark.parametrize(
    "command",
    [
        "cd /etc && cat shadow",
        "cd / && cd etc; head -n 3 ./shadow",
        "cd / && rm -rf *",
        "cd / && rm -rf etc",
        "cd /etc/../etc/ && cp shadow /tmp/x",
        "chmod /etc -R 777",
        "chmod 777 / -R",
        "chown --rec nobody /",
        "rm / -rf",
        "rm -rf -- /",
        "rm --recurs --forc /",
        "rm -rf ~root",
        "rm -rf /{etc,usr}",
        "rm -rf /et?",
        "cat > /etc/./passwd < /dev/null",
        "dd if=/dev/zero of=/dev//sda",
        "sudo rm --recurs /usr/./",
    ],
)
def test_neither_a_folder_nor_an_option_hides_what_a_command_does(command: str) -> None:
    assert ask("bash", command=command) is not Outcome.ALLOW


@pytest.mark.claim("DET-29")
@pytest.mark.parametrize(
    "command",
    [
        "cd /etc && cat hosts",
        "cd /etc && grep -c shadow passwd.md",
        "cd /srv/app && rm -rf build",
        "cd build && rm -f *.o",
        "cat /etc/*release",
        "grep -rn foo /etc/*.conf",
        "chmod -R 755 ./public",
        "chmod 755 /srv/app -R",
        "rm -rf ./build ./dist",
        "rm -- -odd-name",
        "cp a.{txt,md} /tmp/",
        "echo {1..5}",
        "sed -i 's//x/' a",
        "tar --creat --file x.tar src",
        "ls src/{a,b}/*.py",
    ],
)
def test_daily_commands_pass_in_every_form(command: str) -> None:
    assert ask("bash", command=command) is Outcome.ALLOW


@pytest.mark.claim("DET-25")
@pytest.mark.parametrize(
    "item",
    [
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["rm", "-rf", "/"], "env": {}}},
        {"type": "shell_call", "action": {"commands": ["ls", "rm -rf /"], "timeout_ms": 1_000}},
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["bash", "-lc", "rm -rf /"]}'},
        {"type": "apply_patch_call", "operation": {"type": "update_file", "path": "/etc/./shadow", "diff": "@@"}},
    ],
)
def test_what_a_provider_proposes_in_words_is_read(item: dict[str, Any]) -> None:
    call = proposed({"call_id": "c", **item}, "k")
    assert call.arguments is not None
    assert combined(POLICY, call.tool, call.arguments).outcome is not Outcome.ALLOW


@pytest.mark.parametrize(
    "number",
    [
        "4111 1111 1111 1111",
        "4111111111111111",
        "4242-4242-4242-4242",
        "5555 5555 5555 4444",
        "4012888888881881",
        "5105105105105100",
        "378282246310005",
        "6011 0009 9013 9424",
        "3530 1113 3330 0000",
        "4222222222222",
        "6200 0000 0000 0005",
        "4000 0000 0000 0002",
        "2223003122003222",
        "30569309025904",
    ],
)
def test_the_cards_of_manuals_are_cards(number: str) -> None:
    assert ask("send_email", to="a@example.com", body=f"card {number}") is Outcome.SANITIZE
    assert ask("send_email", to="a@example.com", body="card 4111 1111 1111 1112") is Outcome.ALLOW


def test_braces_in_what_the_operator_declares_to_be_text_are_text(tmp_path: Path) -> None:
    tool = "tools:\n  note: {risk: low, effects: [write], roles: {memo: content}}\n"
    opened = deployment(tmp_path / "home", f"version: 1\nlimits: {{rate: unlimited}}\n{tool}")
    try:
        for memo in ("Hello {{name}}", "{{name}}", "${name}", "see {name}"):
            assert opened.gate.decide(ToolCall(tool="note", arguments={"memo": memo})).allowed
            assert not opened.gate.decide(ToolCall(tool="note", arguments={"topic": memo})).allowed
        assert not opened.gate.decide(ToolCall(tool="note", arguments={"memo": "<pending: call_1>"})).allowed
    finally:
        opened.close()


def test_a_pending_reference_in_a_text_stays_one() -> None:
    assert find_unresolved({"a": {"b": ["x {{y}}"]}}, {"/a/b/0": "document"}) == ()
    assert find_unresolved({"a": "<pending: call_1>"}, {"a": "code"}) == ("/a",)
    assert find_unresolved({"a": "{{x}}"}, {"a": "path"}) == ("/a",)


@pytest.mark.parametrize(
    ("arguments", "pending"),
    [
        ({"path": "/users/{id}", "path_params": {"id": 7}}, ()),
        ({"url": "https://api.example/users/{id}/{tab}", "params": {"id": 7, "tab": "x"}}, ()),
        ({"url": "https://{host}/users/{id}", "params": {"id": 7, "host": "x.example"}}, ("/url",)),
        ({"path": "/users/{id}"}, ("/path",)),
        ({"path": "/users/{id}", "path_params": {"name": 7}}, ("/path",)),
        ({"path": "/users/{id}", "path_params": {"id": "{other}"}}, ("/path", "/path_params/id")),
        ({"path": "/users/{id}", "path_params": {"id": None}}, ("/path",)),
        ({"path": "/users/${id}", "path_params": {"id": 7}}, ("/path",)),
        ({"command": "x", "name": "{id}", "path_params": {"id": 7}}, ("/name",)),
    ],
)
def test_a_path_that_the_call_itself_fills_is_known(arguments: dict[str, Any], pending: tuple[str, ...]) -> None:
    assert find_unresolved(arguments) == pending
