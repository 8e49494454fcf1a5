"""`aegis doctor`: a healthy home passes, and each defect is found by the check that is for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from support.deployments import deployment
from support.shell import aegis, read_json


@pytest.fixture
def home(tmp_path: Path) -> Path:
    place = tmp_path / "home"
    running = deployment(place)
    for number in range(5):
        running.gate.decide(ToolCall(tool="read_file", arguments={"path": f"{number}.txt"}))
    running.close()
    return place


def examine(home: Path, *more: str | Path) -> tuple[int, dict[str, dict[str, Any]]]:
    finished = aegis("doctor", "--home", home, "--json", *more)
    value = read_json(finished)
    assert value["healthy"] is (finished.returncode == 0)
    return finished.returncode, {one["check"]: one for one in value["checks"]}


def test_a_healthy_home_passes_and_says_what_it_cannot_protect_from(home: Path) -> None:
    code, checks = examine(home)
    assert code == 0
    assert checks["home"]["state"] == checks["keys"]["state"] == checks["log"]["state"] == "ok"
    assert checks["users"]["state"] == "warn"
    assert checks["gateway"]["state"] == "skip"


def test_looking_at_a_home_that_is_not_there_makes_none(tmp_path: Path) -> None:
    code, checks = examine(tmp_path / "none")
    assert code == 1
    assert checks["home"]["state"] == "fail"
    assert not (tmp_path / "none").exists()


def test_a_home_that_others_can_write_fails(home: Path) -> None:
    home.chmod(0o777)
    code, checks = examine(home)
    assert code == 1
    assert checks["home"]["hint"] == f"chmod 700 {home}"


@pytest.mark.parametrize("name", ["log.key", "agents"])
def test_a_key_that_others_can_read_fails(home: Path, name: str) -> None:
    path = home / "keys" / name
    (path if path.is_file() else next(path.iterdir())).chmod(0o644)
    code, checks = examine(home)
    assert code == 1
    assert checks["keys"]["state"] == "fail"


def test_a_configuration_that_does_not_compile_fails_with_its_line(home: Path) -> None:
    (home / "aegis.yaml").write_text("version: 1\nprofil: strict\n")
    code, checks = examine(home)
    assert code == 1
    assert checks["configuration"]["found"].startswith("line 2: ")


def test_a_configuration_that_only_observes_is_pointed_out(home: Path) -> None:
    (home / "aegis.yaml").write_text("version: 1\nprofile: observe\n")
    assert examine(home)[1]["configuration"]["state"] == "warn"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE leaf SET body = CAST(replace(CAST(body AS TEXT), 'read_file', 'read_fil_') AS BLOB) WHERE idx = 6",
        "DELETE FROM leaf WHERE idx = 6",
    ],
)
def test_a_damaged_log_fails(home: Path, damage: str) -> None:
    with sqlite3.connect(home / "aegis.db") as connection:
        assert connection.execute(damage).rowcount == 1
    connection.close()
    code, checks = examine(home)
    assert code == 1
    assert checks["log"]["state"] == "fail"
    assert "index 6" in checks["log"]["found"]


def test_a_lost_database_is_said_and_not_made_anew(home: Path) -> None:
    (home / "aegis.db").unlink()
    _, checks = examine(home)
    assert checks["store"]["state"] == "skip"
    assert not (home / "aegis.db").exists()


def test_a_gateway_that_does_not_answer_fails(home: Path) -> None:
    code, checks = examine(home, "--url", "http://127.0.0.1:1")
    assert code == 1
    assert checks["gateway"]["state"] == "fail"
