"""`aegis missions`, as an issuer types it on the machine that keeps the log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from aegis.cli import output
from aegis.cli.run import run

ROOT: dict[str, Any] = {
    "sub": "analyst",
    "purpose": "answer questions",
    "tools": {"allow": ["read_file"], "forbid": ["read_mail"]},
    "effects": ["read"],
    "scope": {"paths": ["glob:/reports/**"]},
    "budgets": {"calls": 10},
    "delegation": {"depth": 1, "subjects": ["helper"]},
}
CHILD: dict[str, Any] = {**ROOT, "sub": "helper", "delegation": {}, "budgets": {"calls": 2}}


class Desk:
    """One home, and the files that its issuer writes."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]):
        self.home = folder / "home"
        self.home.mkdir(mode=0o700)
        self._file = folder / "mission.json"
        self._capsys = capsys
        self._until = int(time.time()) + 3_600

    def run(self, *words: str) -> tuple[int, str, str]:
        """`aegis missions` with these words: its exit code, and both of its outputs."""
        code = run(["missions", *words, "--home", str(self.home)])
        told = self._capsys.readouterr()
        return code, told.out.strip(), told.err

    def file(self, members: dict[str, Any]) -> str:
        self._file.write_bytes(orjson.dumps({"exp": self._until, **members}))
        return str(self._file)

    def json(self, *words: str) -> Any:
        code, out, _ = self.run(*words, "--json")
        assert code == output.DONE
        return orjson.loads(out)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def test_a_mission_is_issued_shown_verified_delegated_and_revoked(desk: Desk, tmp_path: Path) -> None:
    root = desk.json("issue", desk.file(ROOT))
    held = tmp_path / "mission.jwt"
    held.write_text(root["mission"])
    assert desk.json("verify", str(held))["mission_id"] == root["mission_id"]
    code, child, _ = desk.run("delegate", root["mission_id"], desk.file(CHILD), "--request", "first")
    assert code == output.DONE
    assert desk.run("delegate", root["mission_id"], desk.file(CHILD), "--request", "first")[1] == child
    assert desk.json("show", child)["lineage"] == [root["mission_id"], child]
    assert {row["mission_id"] for row in desk.json("list")["items"]} == {root["mission_id"], child}
    for word, state in (("suspend", "suspended"), ("resume", "active"), ("revoke", "revoked")):
        assert desk.run(word, root["mission_id"], "--reason", "because")[0] == output.DONE
        assert desk.json("show", child)["state"] == state
    assert desk.run("resume", root["mission_id"])[0] == output.USAGE


def test_a_token_that_does_not_verify_is_exit_1_with_what_is_wrong(desk: Desk, tmp_path: Path) -> None:
    token = desk.json("issue", desk.file(ROOT))["mission"]
    head, claims, signature = token.split(".")
    held = tmp_path / "mission.jwt"
    for wrong in (f"{head}.{claims}.{signature[::-1]}", f"{head}.{claims}", "", "no token"):
        held.write_text(wrong)
        code, out, _ = desk.run("verify", str(held), "--json")
        assert code == output.REFUSED
        assert orjson.loads(out)["verified"] is False


@pytest.mark.parametrize(
    ("wider", "dimension", "helps"),
    [
        ({"effects": ["read", "exec"]}, "effects", ""),
        ({"tools": {"allow": ["read_file"]}}, "denials", "`tools.forbid`"),
        ({"scope": {"paths": ["glob:/**"]}}, "scope", "inside of one of the parent's"),
    ],
)
def test_a_delegation_that_goes_beyond_is_refused_by_the_dimension_that_it_names(
    desk: Desk, wider: dict[str, Any], dimension: str, helps: str
) -> None:
    root = desk.json("issue", desk.file(ROOT))["mission_id"]
    code, out, told = desk.run("delegate", root, desk.file({**CHILD, **wider}), "--request", "one")
    assert (code, out) == (output.USAGE, "")
    assert f"`{dimension}`" in told
    assert helps in told


def test_what_an_issuer_should_look_at_again_is_said_at_issue(desk: Desk) -> None:
    code, out, told = desk.run("issue", desk.file({**ROOT, "scope": {"paths": ["glob:**"]}, "budgets": {}}))
    assert code == output.DONE
    assert out
    assert "`scope.paths` holds a lone `**`" in told
    assert "`budgets` sets no ceiling" in told


def test_scopes_that_overlap_ambiguously_and_flows_that_conflict_are_refused(desk: Desk) -> None:
    overlapping = {"scope": {"paths": ["glob:/a/*/x"]}, "forbidden_scope": {"paths": ["glob:/a/b/**"]}}
    code, _, told = desk.run("issue", desk.file({**ROOT, **overlapping}))
    assert code == output.USAGE
    assert "overlap ambiguously" in told
    classes = {"a": {"tools": ["read_file"]}, "b": {"tools": ["send"]}}
    rules = [{"source": "a", "sink": "b", "action": action} for action in ("allow", "deny")]
    code, _, told = desk.run("issue", desk.file({**ROOT, "flow": {"classes": classes, "rules": rules}}))
    assert code == output.USAGE
    assert "`flow.rules[1]`" in told
