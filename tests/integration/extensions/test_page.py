"""The page about packages of other people, done as it is written: built, installed, tested and named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.environments import ROOT, Fresh, fresh_environment
from support.pages import blocks

PAGE = ROOT / "docs" / "howto" / "write-a-guard-outside.md"
TESTS = "import test_hours_guard as t; [getattr(t, n)() for n in dir(t) if n.startswith('test_')]"
DECIDES = """
import sys, json
from aegis import Gate, ToolCall
gate = Gate.open(sys.argv[1], home=sys.argv[2])
print(gate.decide(ToolCall(tool="read_file", arguments={"path": "notes.txt"})).outcome.word)
gate.close()
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page in a folder of their own."""
    place = tmp_path_factory.mktemp("page")
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        kind, _, name = block.note.partition(": ")
        if kind == "file":
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_text(block.text)
            (place / name).chmod(0o600)
    place.chmod(0o700)
    return place


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory, files: Path) -> Fresh:
    """An environment in which Aegis and the package of the page are installed."""
    made = fresh_environment(tmp_path_factory.mktemp("fresh") / "env")
    made.install(files / "hours-guard")
    return made


def test_the_guard_of_the_page_has_less_than_forty_lines(files: Path) -> None:
    assert len((files / "hours-guard" / "hours_guard.py").read_text().splitlines()) < 40


def test_the_package_of_the_page_passes_its_tests(fresh: Fresh, files: Path) -> None:
    done = fresh.run("-c", TESTS, PYTHONPATH=str(files / "hours-guard"))
    assert done.returncode == 0, done.stderr


def test_the_installed_guard_is_asked_as_the_page_configures_it(fresh: Fresh, files: Path, tmp_path: Path) -> None:
    config, home = files / "aegis.yaml", str(tmp_path / "home")
    checked = fresh.run("-m", "aegis.cli", "config", "check", config)
    assert checked.returncode == 0, checked.stderr
    assert fresh.run("-c", DECIDES, config, home).stdout.split() == ["allow"]


def test_options_that_the_package_refuses_are_said_with_its_name_and_the_line(
    fresh: Fresh, files: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "aegis.yaml"
    wrong.write_text(re.sub(r"first: 0", "first: 30", (files / "aegis.yaml").read_text()))
    wrong.chmod(0o600)
    checked = fresh.run("-m", "aegis.cli", "config", "check", wrong)
    assert checked.returncode == 2
    assert f"{wrong}:4: the guard `hours` of the package `hours-guard` cannot be made" in checked.stderr
