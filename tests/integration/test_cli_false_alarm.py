"""`aegis report-false-alarm`: what was stopped for nothing, small enough to read and safe enough to show."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from support.shell import aegis

CASE = {
    "tool": "find_user",
    "server": "mcp:crm",
    "arguments": {
        "name": "Anna Meier' OR '1'='1 of Musterstadt",
        "note": "met at the fair in Hall 7",
        "tags": ["vip", "retail"],
    },
}


def test_a_case_keeps_what_the_rule_needs_and_nothing_that_names_anybody(tmp_path: Path) -> None:
    out = tmp_path / "cases.yaml"
    finished = aegis("report-false-alarm", "-", "--out", out, "--note", "a test", stdin=json.dumps(CASE))
    assert finished.returncode == 0, finished.stderr
    (case,) = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert (case["tool"], case["server"], case["note"]) == ("find_user", "mcp:crm", "a test")
    assert "sql-tautology" in case["stopped_by"]
    assert list(case["arguments"]) == ["name"]
    assert not any(word in out.read_text(encoding="utf-8") for word in ("Anna", "Meier", "Musterstadt", "Hall"))
    again = aegis("decide", "-", "--home", tmp_path / "home", stdin=json.dumps(CASE))
    assert json.loads(again.stdout)["decision"] == "block"


def test_of_secrets_nothing_is_kept(tmp_path: Path) -> None:
    out, secret = tmp_path / "cases.yaml", "ghp_k3Qz8VtX1mLw9RbN5cYhJ2dPfG7sUa4E1bQz"
    given = {"tool": "read_page", "result": f"the token is {secret} and more"}
    finished = aegis("report-false-alarm", "-", "--out", out, stdin=json.dumps(given))
    assert finished.returncode == 0, finished.stderr
    assert secret not in finished.stdout + out.read_text(encoding="utf-8")
    assert "k3Qz8" not in out.read_text(encoding="utf-8")


def test_the_last_call_that_was_stopped_is_taken_from_the_log_and_cases_add_up(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "cases.yaml"
    assert aegis("init", "--home", home).returncode == 0
    assert aegis("decide", "-", "--home", home, stdin=json.dumps(CASE)).returncode == 1
    for _ in range(2):
        finished = aegis("report-false-alarm", "--home", home, "--out", out)
        assert finished.returncode == 0, finished.stderr
    cases = yaml.safe_load(out.read_text(encoding="utf-8"))
    assert [case["tool"] for case in cases] == ["find_user", "find_user"]


def test_what_no_rule_stops_is_no_case(tmp_path: Path) -> None:
    given = {"tool": "read_file", "arguments": {"path": "notes.txt"}}
    finished = aegis("report-false-alarm", "-", "--out", tmp_path / "c.yaml", stdin=json.dumps(given))
    assert finished.returncode == 2
    assert "nothing of this policy stops that" in finished.stderr
    assert not (tmp_path / "c.yaml").exists()
