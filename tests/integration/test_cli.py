"""What every command has in common: help, one line a failure, exit codes, text that is safe to print."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import orjson
import pytest

from aegis.core.text import json_text, visible
from support.shell import AEGIS, aegis, environment, read_json


def test_help_names_every_command_and_ends_well() -> None:
    finished = aegis("--help")
    assert finished.returncode == 0
    assert "rules" in finished.stdout
    assert aegis().stdout == finished.stdout


@pytest.mark.parametrize(
    "arguments", [["nothing-like-it"], ["rules"], ["rules", "list", "--no-such"], ["rules", "explain"]]
)
def test_a_wrong_command_line_is_one_line_and_a_hint(arguments: list[str]) -> None:
    finished = aegis(*arguments)
    assert finished.returncode == 2
    assert finished.stdout == ""
    first, second = finished.stderr.splitlines()
    assert first.startswith("aegis: ")
    assert second.startswith("  hint: ")


def test_a_failure_is_one_object_with_json() -> None:
    finished = aegis("rules", "explain", "sql-tautolog", "--json")
    assert finished.returncode == 2
    error = orjson.loads(finished.stderr)["error"]
    assert error["code"] == "not_found"
    assert "`sql-tautology`" in error["hint"]


def test_rules_are_tab_separated_in_a_pipe_and_items_in_json() -> None:
    lines = aegis("rules", "list").stdout.splitlines()
    items = read_json(aegis("rules", "list", "--json"))["items"]
    assert [line.split("\t")[0] for line in lines] == [item["id"] for item in items]
    only = read_json(aegis("rules", "list", "--category", "sql_injection", "--json"))["items"]
    assert {item["category"] for item in only} == {"sql_injection"}


def test_a_rule_of_a_users_folder_is_explained(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own-word.yaml").write_text(
        "id: own-word\ntitle: a word\ncategory: policy\nseverity: low\noutcome: allow\nroles: [any]\n"
        "message: a word is there\npatterns: ['xyzzy']\nexamples: {match: [xyzzy, a xyzzy], pass: [a, b]}\n"
    )
    detail = read_json(aegis("rules", "explain", "own-word", "--rules", tmp_path, "--json"))
    assert detail["patterns"] == ["xyzzy"]
    assert detail["examples"][0] == {"kind": "match", "text": "xyzzy"}


def test_the_examples_of_the_rules_that_ship_hold() -> None:
    finished = aegis("rules", "test", "--json")
    assert finished.returncode == 0
    value = read_json(finished)
    assert value["failed"] == []
    assert value["examples"] > 100


def test_a_new_rule_is_written_once_its_own_examples_hold(tmp_path: Path) -> None:
    rule = ["own-word", "--category", "policy", "--title", "a code name", "--pattern", r"\bplugh[0-9]+\b"]
    good = ["--match", "go to plugh1", "--match", "the plugh22 file", "--pass", "a plough", "--pass", "plugh"]
    written = aegis("rules", "new", *rule, *good, "--out", tmp_path)
    assert written.returncode == 0
    assert Path(written.stdout.strip()) == tmp_path / "own" / "own-word.yaml"
    tested = aegis("rules", "test", "own-word", "--rules", tmp_path, "--json")
    assert (tested.returncode, read_json(tested)["examples"]) == (0, 4)
    tmp_path.chmod(0o700)
    config = tmp_path / "aegis.yaml"
    config.write_text("version: 1\nrules: ['.']\n")
    served = aegis("rules", "test", "own-word", "--config", config, "--json")
    assert (served.returncode, read_json(served)["examples"]) == (0, 4)
    again = aegis("rules", "new", *rule, *good, "--out", tmp_path)
    assert again.returncode == 2
    bad = ["--match", "go to plugh", "--match", "the plugh22 file", "--pass", "a plough", "--pass", "plug"]
    refused = aegis("rules", "new", *rule, *bad, "--out", tmp_path / "other")
    assert refused.returncode == 2
    assert "`go to plugh` is not found" in refused.stderr
    assert not (tmp_path / "other").exists()


def test_an_example_that_its_rule_gets_wrong_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "own-word.yaml").write_text(
        "id: own-word\ntitle: a word\ncategory: policy\nseverity: low\noutcome: allow\nroles: [any]\n"
        "message: a word is there\npatterns: ['plugh[0-9]']\n"
        "examples: {match: [the plugh1 file, the plugh file], pass: [a, b]}\n"
    )
    finished = aegis("rules", "test", "own-word", "--rules", tmp_path, "--json")
    assert finished.returncode == 1
    assert [wrong["text"] for wrong in read_json(finished)["failed"]] == ["the plugh file"]


@pytest.mark.parametrize("name", ["../escape", "a b", "a/b", ""])
def test_a_rules_id_is_no_path(tmp_path: Path, name: str) -> None:
    arguments = [
        "--category",
        "policy",
        "--title",
        "t",
        "--pattern",
        "plugh1",
        "--match",
        "a plugh1",
        "--match",
        "b plugh1",
    ]
    finished = aegis("rules", "new", name, *arguments, "--pass", "a", "--pass", "b", "--out", tmp_path / "rules")
    assert finished.returncode == 2
    assert not (tmp_path / "rules").exists()


def test_a_broken_rule_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "bad.yaml").write_text("id: bad\nid: bad\n")
    finished = aegis("rules", "list", "--rules", tmp_path)
    assert finished.returncode == 2
    assert "bad.yaml:2: " in finished.stderr


def test_a_terminal_gets_a_table() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([AEGIS, "rules", "list"], stdout=theirs, env=environment({"COLUMNS": "200"})) as process:
        text = _drain(ours, theirs)
        assert process.wait(60) == 0
    assert "CATEGORY" in text
    assert "\t" not in text


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    with subprocess.Popen(
        [AEGIS, "rules", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "a\rb", "tab\there", "\u202egnp", "zero\u200bwidth", "\x9b31m", "\U000e0041"]
)
def test_what_a_terminal_would_obey_is_spelled_out(hostile: str) -> None:
    shown = visible(hostile)
    assert all(char.isprintable() for char in shown)
    assert orjson.loads(json_text({"name": hostile})) == {"name": hostile}
    assert all(char.isprintable() for char in json_text({hostile: hostile}))


def test_ordinary_text_of_any_script_is_left_alone() -> None:
    assert visible("Zürich, 東京, עברית 🙂") == "Zürich, 東京, עברית 🙂"


def _drain(ours: int, theirs: int) -> str:
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65_536)
        except OSError:  # a pseudo-terminal whose other end is closed answers so on Linux
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    return b"".join(chunks).decode()
