"""Every example of every file of `data/programs`, through facts and guards, and every deed in its own words."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import aegis
from aegis.detect import gather
from aegis.detect.facts import Facts, FactSubject, ReadLimits
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.detect.rules.model import Example
from aegis.detect.shell.catalogue import EFFECTS, KINDS, SIGNALS, Family, families, program_folder
from aegis.policy.guards.examine import examiner
from support.pages import blocks

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "add-a-program.md"
FILES = sorted(program_folder().glob("*.yaml"))
RULES = load(builtin_folder(), cache=default_cache_folder())


def facts_of(command: str, shell: str = "bash") -> Facts:
    return gather(FactSubject(tool=shell, server=None, arguments={"command": command}, limits=ReadLimits()))


def family(path: Path) -> Family:
    return families([(path.name, path.read_text(encoding="utf-8"))])[0]


@pytest.mark.claim("DET-60")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_finds_what_its_examples_say(path: Path) -> None:
    wrong = []
    for example in family(path).found:
        facts = facts_of(example.command, example.shell)
        seen = {signal.fact for signal in facts.signals} | set(facts.effects)
        if (example.signal or example.effect or example.does) not in seen:
            wrong.append(f"{example.command}: {sorted(seen)}")
    assert wrong == []


@pytest.mark.claim("DET-60")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_lets_pass_what_its_examples_say(path: Path) -> None:
    detect = examiner(Scanner(RULES, cache=default_cache_folder()))
    calls = {
        command: Example(kind="pass", surface="unknown", tool="bash", arguments={"command": command})
        for command in family(path).passes
    }
    assert {command: detect(call) for command, call in calls.items() if detect(call)} == {}


@pytest.mark.claim("DET-60")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_deed_is_found_in_its_own_words(path: Path) -> None:
    wrong = []
    for program in family(path).programs:
        for deed in program.deeds:
            for words in deed.words:
                command = shlex.join([program.names[0], *(words.split() or ["target"])])
                seen = {signal.fact for signal in facts_of(command).signals}
                if deed.signal not in seen:
                    wrong.append(f"{command}: {sorted(seen)}")
    assert wrong == []


def test_every_kind_is_one_of_some_program_and_every_signal_is_one_of_some_rule() -> None:
    programs = [program for path in FILES for program in family(path).programs]
    assert {kind for program in programs for kind in program.kinds} == set(KINDS)
    assert set(SIGNALS) - {fact for rule in RULES.rules for fact in rule.facts} == set()
    assert {example.effect for path in FILES for example in family(path).found} - {""} <= EFFECTS


# Analysers make their sets when they are imported, so a program that is added is seen by a process that starts then.
_ASKS = """
import json, sys

from aegis.detect import gather
from aegis.detect.facts import FactSubject, ReadLimits

for command in json.load(sys.stdin):
    facts = gather(FactSubject(tool="bash", server=None, arguments={"command": command}, limits=ReadLimits()))
    print(json.dumps([*(signal.fact for signal in facts.signals), *facts.effects]))
"""


@pytest.mark.claim("DET-60")
def test_a_program_is_added_by_a_file_alone(tmp_path: Path) -> None:
    (written,) = [block.text for block in blocks(PAGE.read_text(encoding="utf-8")) if block.note.startswith("file:")]
    (added,) = [families([("kopia.yaml", written)])[0]]
    commands = [example.command for example in added.found] + list(added.passes)

    package = Path(aegis.__file__).parent
    shutil.copytree(package, tmp_path / "src" / "aegis", ignore=shutil.ignore_patterns("__pycache__", "_data"))
    shutil.copytree(program_folder().parent, tmp_path / "data")
    folder = tmp_path / "data" / "programs"

    def asked() -> list[set[str]]:
        answer = subprocess.run(
            [sys.executable, "-c", _ASKS],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "src")},
            input=msgspec.json.encode(commands),
            capture_output=True,
            check=True,
        )
        return [set(msgspec.json.decode(line, type=list[str])) for line in answer.stdout.splitlines()]

    assert not any(seen & SIGNALS for seen in asked())
    (folder / "kopia.yaml").write_text(written, encoding="utf-8")
    seen = asked()
    assert [example.signal in found for example, found in zip(added.found, seen, strict=False)] == [True, True, True]
    assert not any(found & SIGNALS for found in seen[len(added.found) :])
