"""A stranger's first minutes: the wheel in an environment of its own, and the first screen of the README as written."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from support.environments import Fresh, fresh_environment
from support.pages import Block, blocks

ROOT: Final = Path(__file__).resolve().parents[2]
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST: Final = tuple(blocks(README[README.index("## The first block") : README.index("## How it works")]))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    place = tmp_path_factory.mktemp("first")
    place.chmod(0o700)
    return fresh_environment(place / "env", extras=_extras(_block("pip install")))


def _block(has: str) -> Block:
    (found,) = [block for block in FIRST if has in block.text]
    return found


def _extras(block: Block) -> frozenset[str]:
    """The extras that the line of the README installs."""
    (spelled,) = set(re.findall(r'"aegis-guard\[([a-z,]+)\]"', block.text))
    return frozenset(spelled.split(","))


def _run(fresh: Fresh, place: Path, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euc", command], cwd=place, env=_environment(fresh, place, **variables), capture_output=True,
        text=True, check=False, timeout=120,
    )  # fmt: skip


def _environment(fresh: Fresh, place: Path, **variables: str) -> dict[str, str]:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    own = {"PATH": f"{fresh.place / 'bin'}:/usr/bin:/bin", "HOME": str(place), "XDG_CACHE_HOME": cache}
    return {**own, "COLUMNS": "80", **variables}


@contextmanager
def _served(fresh: Fresh, place: Path, command: str, port: str) -> Iterator[str]:
    with subprocess.Popen(
        ["bash", "-euc", f"exec {command}"], cwd=place, env=_environment(fresh, place, AEGIS_PORT=port),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.terminate()
            process.wait(30)


def _lines(block: Block) -> list[str]:
    return [line.partition("#")[0].strip() for line in block.text.splitlines()]


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def test_the_readme_is_followed_outside_the_clone_with_the_wheel_alone(fresh: Fresh, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    port = _free_port()
    init, serve = _lines(_block("aegis init "))
    made = _run(fresh, tmp_path, init, AEGIS_PORT=port)
    assert made.returncode == 0, made.stderr
    # What is printed for the agent is pasted as it is.
    exported = [line.strip() for line in made.stderr.splitlines() if line.strip().startswith("export ")]
    names = [re.findall(r"export (\w+)=", line)[0] for line in exported]
    assert names == re.findall(r"export (\w+)=", _block("export AEGIS_API_KEY").text)
    printed_serve = next(line.strip() for line in made.stderr.splitlines() if line.strip().startswith("aegis serve"))
    assert shlex.split(printed_serve)[: len(shlex.split(serve))] == shlex.split(serve)
    script = next(block for block in FIRST if block.note == "file: agent.py")
    (tmp_path / "agent.py").write_text(script.text)
    with _served(fresh, tmp_path, serve, port) as ready:
        assert f"http://127.0.0.1:{port}" in ready
        asked = _run(fresh, tmp_path, "\n".join([*exported, _block("python agent.py").text]))
        assert asked.returncode == 0, asked.stderr
        said = next(block for block in FIRST if block.note == "output").text.replace("...", "")
        assert asked.stdout.splitlines() == said.splitlines()
        for command in _lines(_block("aegis why last")):
            shown = _run(fresh, tmp_path, command)
            assert shown.returncode == 0, shown.stderr
            assert "search" in shown.stdout
    held = _run(fresh, tmp_path, "aegis log tail --json")
    assert "attack_detected" in held.stdout, "the gateway's log has the block"


@pytest.mark.parametrize("template", ["coding", "office", "data", "support"])
def test_templates_are_in_the_wheel(fresh: Fresh, tmp_path: Path, template: str) -> None:
    tmp_path.chmod(0o700)
    made = _run(fresh, tmp_path, f"aegis init --template {template} && aegis config check .aegis/aegis.yaml")
    assert made.returncode == 0, made.stderr
