"""The library is light to embed: what servers and command lines need is loaded by them alone, and need not be there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from support.environments import Fresh, fresh_environment

# What the extra `server` brings, and what only the command line imports.
OF_SERVERS: Final = (
    "aiosmtplib", "argon2", "jinja2", "opentelemetry", "prometheus_client", "reportlab", "starlette", "uvicorn",
)  # fmt: skip
OF_COMMANDS: Final = ("rich", "typer")
DECIDES: Final = """
import json, sys
from pathlib import Path
from aegis import Gate, ToolCall
gate = Gate.open(home=Path(sys.argv[1]))
said = [gate.decide(ToolCall(tool=tool, arguments=arguments)) for tool, arguments in (
    ("read_file", {"path": "notes.txt"}),
    ("run", {"command": "rm -rf / --no-preserve-root"}),
)]
gate.close()
named = [name for name in sys.argv[2].split() if name in sys.modules]
print(json.dumps([[one.outcome.word for one in said], named]))
"""
IMPORT_MS: Final = 150


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    return fresh_environment(tmp_path_factory.mktemp("fresh") / "env")


def test_importing_the_package_is_quick_and_loads_nothing_of_servers_and_command_lines() -> None:
    code = (
        "import time; before = time.process_time(); import aegis; spent = time.process_time() - before\n"
        "import sys, json; print(json.dumps([spent, sorted(sys.modules)]))"
    )
    runs = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout))
    assert {*OF_SERVERS, *OF_COMMANDS} & set(runs[0][1]) == set()
    assert min(spent for spent, _ in runs) * 1_000 < IMPORT_MS


def test_the_wheel_without_extras_decides_a_call(fresh: Fresh, tmp_path: Path) -> None:
    done = fresh.run("-c", DECIDES, str(tmp_path / "home"), " ".join((*OF_SERVERS, *OF_COMMANDS)))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["allow", "block"], []]
    there = fresh.run("-c", f"from importlib.util import find_spec; print(*filter(find_spec, {OF_SERVERS}))")
    assert there.stdout.split() == []


def test_the_wheel_without_extras_has_its_command_line(fresh: Fresh, tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    assert fresh.run("-m", "aegis.cli", "--help").returncode == 0
    call = tmp_path / "call.json"
    call.write_text('{"tool": "read_file", "arguments": {"path": "notes.txt"}}')
    asked = fresh.run("-m", "aegis.cli", "decide", call, "--home", home)
    assert asked.returncode == 0, asked.stderr


def test_a_command_of_a_server_names_the_extra_that_it_needs(fresh: Fresh, tmp_path: Path) -> None:
    done = fresh.run("-m", "aegis.cli", "serve", "--home", str(tmp_path / "home"))
    assert done.returncode == 2
    assert 'pip install "aegis-guard[server]"' in done.stderr
    assert "Traceback" not in done.stderr
