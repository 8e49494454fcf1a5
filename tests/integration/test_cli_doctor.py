"""`aegis doctor`: a healthy home passes, and each defect is found by the check that is for it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aegis.core.call import ToolCall
from aegis.core.reasoning import Reasoning, ReasoningBlock
from support.deployments import deployment
from support.postgres import Server
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


TOOLS = """
import logging
from langchain_core.tools import BaseTool, tool

logging.basicConfig(level=logging.INFO)
logging.getLogger("shop").info("Using the usual shelf")
logging.getLogger("shop").warning("The shelf is empty")

@tool
def wipe(disk: str, times: int = 1) -> str:
    "Wipe a disk."
    raise SystemExit("a canary must not run this")

class Sly(BaseTool):
    name: str = "sly"
    description: str = "Has a way round."

    def _run(self, text: str) -> str:
        raise SystemExit("a canary must not run this")

# What is done to a class after it was made is hooked by nobody, neither here nor in a program.
Sly.invoke = lambda self, input, config=None, **kwargs: self._run(text="past every seam")

sly = Sly()
"""


def test_canaries_find_the_path_that_leads_round_the_decision(tmp_path: Path) -> None:
    (tmp_path / "shop_tools.py").write_text(TOOLS)
    finished = aegis("doctor", "--coverage", "--import", "shop_tools", "--json", cwd=tmp_path)
    value = read_json(finished)
    assert finished.returncode == 1
    states = {(one["tool"], one["path"]): one["state"] for one in value["paths"]}
    assert states["sly", "invoke"] == "UNCOVERED"
    assert states["sly", "run"] == "covered"
    assert {state for (tool, _), state in states.items() if tool == "wipe"} == {"covered"}
    assert finished.stderr == "WARNING:shop:The shelf is empty\n"


def test_coverage_says_from_receipts_which_agents_bring_reasoning(home: Path) -> None:
    running = deployment(home)
    why = Reasoning(blocks=(ReasoningBlock(text="look it up"), ReasoningBlock(text="then tell", signature="s")))
    running.gate.decide(ToolCall(tool="read_file", arguments={"path": "why.txt"}, reasoning=why))
    running.close()
    value = read_json(aegis("doctor", "--coverage", "--json", "--home", home, cwd=home.parent))
    (row,) = value["reasoning"]
    assert (row["calls"], row["reasoned"], row["signed"]) == (6, 1, 1)


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
    assert checks["store"]["state"] == "fail"
    assert not (home / "aegis.db").exists()


def test_a_gateway_that_does_not_answer_fails(home: Path) -> None:
    code, checks = examine(home, "--url", "http://127.0.0.1:1")
    assert code == 1
    assert checks["gateway"]["state"] == "fail"


def test_a_damaged_page_of_the_database_fails(home: Path) -> None:
    file = home / "aegis.db"
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    data = bytearray(file.read_bytes())
    for page in range(3, pages):
        data[page * size : page * size + 64] = b"\xff" * 64
    file.write_bytes(bytes(data))
    code, checks = examine(home)
    assert code == 1
    assert checks["store"]["state"] == "fail"
    assert "damaged" in checks["store"]["found"] or "cannot be read" in checks["store"]["found"]


def test_a_database_server_that_may_lose_what_it_confirmed_is_pointed_out(home: Path, postgres_server: Server) -> None:
    """The server of the tests runs with `fsync=off`; `synchronous_commit=off` is what Aegis asked for."""
    config = home / "aegis.yaml"
    for durability, lost in (("fsync", "fsync=off"), ("os", "fsync=off, synchronous_commit=off")):
        config.write_text(f"version: 1\nstore: '{postgres_server.database()}'\ndurability: {durability}\n")
        config.chmod(0o600)
        found = examine(home)[1]["durability"]
        assert (found["state"], found["found"].rpartition(": ")[2]) == ("warn", lost)
