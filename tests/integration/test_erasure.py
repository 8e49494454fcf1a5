"""Erasing a payload: what it held is gone from the store, and the log verifies as before."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from aegis.cli import log
from aegis.core.times import system_clock
from support.shell import aegis, read_json

WORD = "zebra-crossing"


def test_an_erased_payload_is_gone_and_the_log_verifies(tmp_path: Path) -> None:
    home = tmp_path / "home"
    call = json.dumps({"tool": "read_file", "arguments": {"path": f"{WORD}.txt"}, "call_id": "c1"})
    decided = read_json(aegis("decide", "-", "--home", home, "--json", stdin=call))
    erased = aegis("log", "erase", decided["receipt"]["id"], "--home", home, "--json")
    assert erased.returncode == 0, erased.stderr
    assert aegis("log", "erase", decided["receipt"]["id"], "--home", home).returncode != 0

    shown = read_json(aegis("log", "show", decided["receipt"]["id"], "--home", home, "--json"))
    assert WORD not in json.dumps(shown)
    out, trusted = tmp_path / "export", tmp_path / "keys.json"
    assert aegis("log", "export", "--home", home, "--out", out).returncode == 0
    shutil.copy(out / "keys.json", trusted)
    assert aegis("log", "verify", out, "--key", trusted).returncode == 0
    assert any(json.loads(line)["kind"] == "erasure" for line in (out / "receipts.jsonl").open())

    # The same call id cannot be compared any more: it is refused, never decided a second time.
    again = aegis("decide", "-", "--home", home, "--json", stdin=call)
    assert read_json(again)["reason"] == "conflict"


def test_erase_and_explain_take_what_the_list_of_receipts_prints(tmp_path: Path) -> None:
    home = tmp_path / "home"
    call = json.dumps({"tool": "read_file", "arguments": {"path": f"{WORD}.txt"}})
    decided = read_json(aegis("decide", "-", "--home", home, "--json", stdin=call))["receipt"]
    listed = aegis("log", "show", "--kind", "decision", "--home", home).stdout.split()
    for name in (str(decided["index"]), decided["id"]):
        assert name in listed
        explained = read_json(aegis("explain", name, "--home", home, "--json"))["items"]
        assert {one["index"] for one in explained} == {decided["index"]}
        assert "content" in {one["guard"] for one in explained}
    erased = read_json(aegis("log", "erase", str(decided["index"]), "--home", home, "--json"))
    assert erased["erased"] == decided["id"]
    assert aegis("log", "erase", "999999", "--home", home).returncode == 2


def test_payloads_beyond_an_age_are_erased_on_record_and_the_log_verifies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for name in ("a", "b"):
        call = json.dumps({"tool": "read_file", "arguments": {"path": f"{WORD}-{name}.txt"}})
        assert aegis("decide", "-", "--home", home, "--json", stdin=call).returncode == 0
    assert read_json(aegis("log", "erase", "--older-than", "1h", "--home", home, "--json"))["erased"] == 0
    later = system_clock() + 7_200_000_000
    monkeypatch.setattr("aegis.core.times.system_clock", lambda: later)
    gone = CliRunner().invoke(log.app, ["erase", "--older-than", "1h", "--home", str(home), "--json"])
    assert gone.exit_code == 0, gone.output
    assert json.loads(gone.stdout) == {"erased": 2, "left": 0}
    monkeypatch.undo()
    listed = read_json(aegis("log", "show", "--kind", "erasure", "--home", home, "--json"))["items"]
    assert len(listed) == 2
    assert aegis("log", "verify", "--home", home).returncode == 0
    for words in ((), ("last", "--older-than", "1d"), ("--older-than", "soon"), ("--older-than", "0d")):
        assert aegis("log", "erase", *words, "--home", home).returncode == 2
