"""`aegis log`: an export verifies offline with keys from elsewhere, and every defect has its name and place."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from support.deployments import deployment
from support.shell import aegis, gateway, read_json

SECRET = "the quiet orchard at dusk"


def decide(home: Path, count: int = 3) -> None:
    running = deployment(home)
    try:
        for number in range(count):
            running.gate.decide(ToolCall(tool="read_file", arguments={"path": f"{SECRET}-{number}"}))
    finally:
        running.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    decide(place)
    return place


@pytest.fixture
def keys(home: Path, tmp_path: Path) -> Path:
    file = tmp_path / "trusted.json"
    file.write_text(aegis("keys", "public", "--home", home).stdout)
    return file


def export(home: Path, out: Path) -> Path:
    assert aegis("log", "export", "--out", out, "--home", home).returncode == 0
    return out


def verify(folder: Path, *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    finished = aegis("log", "verify", folder, "--json", *arguments)
    return finished.returncode, read_json(finished)


def test_an_export_verifies_and_says_what_it_does_not_cover(home: Path, keys: Path, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "out")
    assert sorted(file.name for file in folder.iterdir()) == ["checkpoint", "keys.json", "receipts.jsonl"]
    code, value = verify(folder, "--key", keys)
    assert (code, value["verified"]) == (0, True)
    assert value["size"] == len((folder / "receipts.jsonl").read_bytes().splitlines())
    assert value["kinds"]["decision"] == 3
    assert any("receipts record decisions" in line for line in value["not_covered"])


def test_an_export_holds_no_argument(home: Path, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "out")
    assert all(SECRET.encode() not in file.read_bytes() for file in folder.iterdir())


def _edit(lines: list[str]) -> list[str]:
    return [line.replace('"read_file"', '"open_file"') if number == 6 else line for number, line in enumerate(lines)]


def _respell(lines: list[str]) -> list[str]:
    return [line.replace(",", ", ", 1) if number == 6 else line for number, line in enumerate(lines)]


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (_edit, {"edited"}),
        (lambda lines: [*lines[:6], *lines[7:]], {"deleted"}),
        (lambda lines: [*lines[:6], lines[7], lines[6], *lines[8:]], {"reordered"}),
        (lambda lines: [*lines[:6], lines[5], *lines[6:]], {"duplicated"}),
        (lambda lines: lines[:-1], {"tail_cut"}),
        (_respell, {"not_canonical"}),
    ],
)
def test_a_damaged_export_is_refused_with_kind_and_place(
    home: Path, keys: Path, tmp_path: Path, damage: Callable[[list[str]], list[str]], kinds: set[str]
) -> None:
    folder = export(home, tmp_path / "out")
    file = folder / "receipts.jsonl"
    file.write_text("".join(damage(file.read_text().splitlines(keepends=True))))
    code, value = verify(folder, "--key", keys)
    assert (code, value["verified"]) == (1, False)
    assert value["break"] in kinds
    if value["break"] != "tail_cut":
        assert value["line"] == 7
    shown = aegis("log", "verify", folder, "--key", keys)
    assert shown.returncode == 1
    assert value["break"] in shown.stdout


def test_a_missing_file_of_an_export_is_not_verified(home: Path, keys: Path, tmp_path: Path) -> None:
    for name in ("checkpoint", "receipts.jsonl"):
        folder = export(home, tmp_path / name)
        (folder / name).unlink()
        assert verify(folder, "--key", keys)[0] == 1


def test_keys_are_never_taken_from_the_export_by_itself(home: Path, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "out")
    assert aegis("log", "verify", folder).returncode == 2
    named = aegis("log", "verify", folder, "--key", folder / "keys.json")
    assert named.returncode == 0
    assert "not whose it is" in named.stderr


def test_another_logs_keys_do_not_verify(home: Path, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "out")
    decide(tmp_path / "other")
    foreign = tmp_path / "foreign.json"
    foreign.write_text(aegis("keys", "public", "--home", tmp_path / "other").stdout)
    assert verify(folder, "--key", foreign)[0] == 1
    assert aegis("log", "verify", folder, "--key", tmp_path / "none.json").returncode == 2
    foreign.write_text("{}")
    assert aegis("log", "verify", folder, "--key", foreign).returncode == 2


def test_a_kept_checkpoint_shows_a_log_that_was_rolled_back(home: Path, keys: Path, tmp_path: Path) -> None:
    shutil.copytree(home, tmp_path / "earlier")
    decide(home)
    kept = tmp_path / "kept"
    kept.write_text(aegis("log", "checkpoint", "--home", home).stdout)
    decide(home)
    code, value = verify(export(home, tmp_path / "grown"), "--key", keys, "--since", kept)
    assert (code, value["verified"]) == (0, True)
    assert value["since"] is not None
    rolled = export(tmp_path / "earlier", tmp_path / "rolled")
    assert verify(rolled, "--key", keys)[0] == 0
    assert verify(rolled, "--key", keys, "--since", kept)[1]["break"] == "tail_cut"
    decide(tmp_path / "earlier", 9)
    forked = export(tmp_path / "earlier", tmp_path / "forked")
    assert verify(forked, "--key", keys)[0] == 0
    assert verify(forked, "--key", keys, "--since", kept)[1]["break"] == "fork"


def test_the_log_of_a_running_gateway_is_exported_and_keys_survive_their_rotation(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with gateway(home) as running:
        key = aegis("keys", "create", "--role", "agent", "--agent", "bot", "--home", home).stdout.strip()
        env = {"AEGIS_URL": running.url, "AEGIS_API_KEY": key}
        call = json.dumps({"tool": "read_file", "arguments": {"path": "a"}})
        assert aegis("decide", "-", stdin=call, env=env).returncode == 0
        trusted = tmp_path / "trusted.json"
        trusted.write_text(aegis("keys", "public", "--home", home).stdout)
        for arguments in (["receipt"], ["receipt", "--agent", "bot"], ["permit"]):
            assert aegis("keys", "rotate", *arguments, "--home", home).returncode == 0
            assert aegis("decide", "-", stdin=call, env=env).returncode == 0
        folder = export(home, tmp_path / "out")
    code, value = verify(folder, "--key", trusted)
    assert (code, value["verified"]) == (0, True), value
    assert value["kinds"]["decision"] == 4
    assert value["kinds"]["grant"] == 1


def test_receipts_are_found_and_shown_masked_and_a_reveal_is_recorded(home: Path) -> None:
    items = read_json(aegis("log", "show", "--kind", "decision", "--home", home, "--json"))["items"]
    assert [item["tool"] for item in items] == ["read_file"] * 3
    assert items[0]["index"] > items[1]["index"]
    assert read_json(aegis("log", "show", "--tool", "none", "--home", home, "--json"))["items"] == []
    by_index = aegis("log", "show", str(items[0]["index"]), "--home", home)
    assert by_index.returncode == 0
    assert SECRET not in by_index.stdout
    revealed = aegis("log", "show", items[0]["receipt_id"], "--reveal", "--home", home)
    assert SECRET in revealed.stdout
    (access,) = read_json(aegis("log", "show", "--kind", "access", "--home", home, "--json"))["items"]
    assert access["parent"] == items[0]["receipt_id"]


@pytest.mark.parametrize("arguments", [["none"], ["--since", "yesterday"], ["--limit", "0"]])
def test_what_cannot_be_looked_for_is_misuse(home: Path, arguments: list[str]) -> None:
    assert aegis("log", "show", *arguments, "--home", home).returncode == 2


def test_an_export_is_written_over_an_older_one(home: Path, keys: Path, tmp_path: Path) -> None:
    folder = export(home, tmp_path / "out")
    decide(home)
    export(home, folder)
    code, value = verify(folder, "--key", keys)
    assert (code, value["kinds"]["decision"]) == (0, 6)
