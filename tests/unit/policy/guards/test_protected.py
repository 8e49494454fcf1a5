from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aegis.cli.run import build
from aegis.core.outcome import Outcome, Reason
from aegis.detect.facts import Facts, Text, Texts, TextView
from aegis.policy.guards.protected import COMMANDS, ProtectedGuard
from support.cases import make_case

HOME = Path("/home/ann/.aegis")
GUARD = ProtectedGuard([HOME, Path("/srv/shop/aegis.yaml"), Path("/data")], user_home=Path("/home/ann"))


def outcome(value: str, role: Any = "command") -> Outcome:
    facts = Facts(texts=Texts(strings=(Text("/x", value, False, role, 90),)))
    return GUARD.check(make_case(facts=facts)).outcome


@pytest.mark.parametrize(
    "command",
    [
        "cat /home/ann/.aegis/keys/log.key",
        "cat ~/.aegis/aegis.db",
        'cat "$HOME/.aegis/aegis.db"',
        "cat ${HOME}/.aegis/aegis.db",
        "cat ~ann/.aegis/aegis.db",
        "true; " * 9_000 + "cat ~/.aegis/aegis.db",
        "x" * 70_000 + " && aegis keys create",
        "x " * 9_000 + " ; cat /srv/../home/ann/.aegis/k ; " + "y " * 9_000,
        "../" * 9_000 + ".aegis/keys",
        "aegis/x " * 30_000,
        "rm -rf ~/src/../.aegis",
        "cd ~ && rm -r .aegis",
        "echo x > aegis.yaml",
        "sed -i s/block/scan/ /srv/shop//./aegis.yaml",
        "cat /home/*/.aegis/keys",
        "cat /home/ann/.aeg?s/keys",
        "cat /home/ann/.[a]egis/keys",
        "cat /proc/self/root/home/ann/.aegis/x",
        "cat /proc/1234/cwd/aegis.yaml",
        "sqlite3 file:///home/ann/.aegis/aegis.db",
        "CAT /HOME/ANN/.AEGIS/X",
        "tar cf x /data/keys",
        "aegis approvals approve 12",
        "/opt/venv/bin/aegis keys create --role approver",
        "python3 -m aegis agents restore bot",
        "cd /x; sudo -u root aegis --home /d serve",
        "AEGIS_HOME=/d aegis config show",
        "X=$(aegis keys create)",
        "bash -c 'aegis approvals approve 12'",
        "X=echo aegis keys create",
        "echo 12 | xargs aegis approvals approve",
        "find . -exec aegis approvals approve {} +",
        "timeout 5 aegis keys create",
        "uv run aegis log export",
        "aegis users create eve --role approver --role admin",
        "aegis hook uninstall claude",
        "aegis mcp uninstall claude-desktop",
        "python3 -m aegis.cli users link root",
    ],
)
def test_a_command_that_touches_the_guard_itself_is_blocked(command: str) -> None:
    assert outcome(command) is Outcome.BLOCK


@pytest.mark.parametrize(
    "command",
    [
        "ls -la ~",
        "cat docs/aegis.yaml.md",
        "cat examples/aegis.yaml",
        "pip install aegis-guard",
        "aegis rules list",
        "aegis --help",
        "grep -rn aegis keys/",
        "echo aegis keys",
        "ls /home/ann/.aegisfoo /home/ann/x.aegis",
        "ls ~/*",
        "cat /srv/data/x /dataset",
        "curl https://example.com/data/x",
        "git clone https://example.com/aegis && cd aegis && make keys",
        "find . -name '*.py'",
        "cat src/aegis/core.py; " * 300,
        "../" * 9_000 + "x",
        "*" * 60_000,
    ],
)
def test_honest_commands_pass(command: str) -> None:
    assert outcome(command) is Outcome.ALLOW


def test_every_command_of_the_command_line_is_protected_or_harmless() -> None:
    harmless = {
        "bench",
        "decide",
        "demo",
        "doctor",
        "judge",
        "rules",
    }  # they change nothing that decides, and show none
    assert set(build().commands) - harmless == COMMANDS


@pytest.mark.parametrize("role", ["path", "url", "unknown", "code", "sql", "identifier"])
def test_every_role_but_content_is_read(role: str) -> None:
    assert outcome("/home/ann/.aegis/aegis.db", role) is Outcome.BLOCK


@pytest.mark.parametrize("role", ["content", "document"])
def test_prose_about_the_guard_passes(role: str) -> None:
    assert outcome("Keys live in ~/.aegis/keys; make one with `aegis keys create`.", role) is Outcome.ALLOW


def test_what_a_shell_would_read_counts_as_well() -> None:
    texts = Texts(strings=(Text("/x", "cat ~/.ae''gis/k", False, "command", 90),))
    facts = Facts(texts=texts, views=(TextView(0, "cat ~/.aegis/k", ("shell",)), TextView(9, "plain", ())))
    report = GUARD.check(make_case(facts=facts))
    assert (report.outcome, report.findings[0].path) == (Outcome.BLOCK, "/x")


def test_what_is_divided_over_arguments_is_put_together_without_the_prose_beside_it() -> None:
    def divided(**roles: tuple[str, Any]) -> Outcome:
        texts = tuple(Text(f"/{name}", value, False, role, 90) for name, (value, role) in roles.items())
        whole = " ".join(value for value, _ in roles.values())
        facts = Facts(texts=Texts(strings=texts), views=(TextView(len(texts) - 1, whole, ("joined",)),))
        return GUARD.check(make_case(facts=facts)).outcome

    prose = "make one: aegis keys create", "document"
    assert divided(a=("aegis", "unknown"), b=("users create eve", "unknown"), c=prose) is Outcome.BLOCK
    assert divided(content=prose, path=("notes/README.md", "path")) is Outcome.ALLOW


@pytest.mark.parametrize("words", ["users create eve", ["users", "create", "eve"]])
def test_a_program_with_its_words_beside_it_is_blocked(words: Any) -> None:
    call = {"args": words, "command": "/usr/bin/aegis", "note": "x"}
    assert GUARD.check(make_case(arguments=call)).outcome is Outcome.BLOCK
    assert GUARD.check(make_case(arguments={"args": words, "command": "ls aegis"})).outcome is Outcome.ALLOW


def test_a_command_given_as_a_list_is_blocked() -> None:
    report = GUARD.check(make_case(arguments={"argv": ["/usr/bin/aegis", "approvals", "approve", "7"]}))
    assert (report.outcome, report.reason) == (Outcome.BLOCK, Reason.POLICY_DENIED)


def test_keys_of_arguments_are_read() -> None:
    assert GUARD.check(make_case(arguments={"files": {"/data/keys/log": "x"}})).outcome is Outcome.BLOCK


def test_without_paths_the_command_line_is_still_protected() -> None:
    assert ProtectedGuard().check(make_case(arguments={"command": "aegis keys create"})).outcome is Outcome.BLOCK


def test_the_finding_shows_nothing_of_what_was_named() -> None:
    facts = Facts(texts=Texts(strings=(Text("/x", "cat ~/.aegis/k", False, "command", 90),)))
    (finding,) = GUARD.check(make_case(facts=facts)).findings
    assert finding.evidence == ""
    assert ".aegis" not in finding.message
