"""Pairs: a dangerous call and its benign twin, a few characters apart; both are right, or the pair does not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import aegis
from aegis.core.outcome import Outcome

FILES = sorted((Path(__file__).parent / "pairs").glob("*.yaml"))
LEAST_RIGHT = 0.97


Call = tuple[str, dict[str, Any]]


@cache
def pairs(path: Path) -> list[tuple[str, Call, Call]]:
    """Each pair of a file, read once: its number and reason, and the tool and arguments of the one and other call."""
    held = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
    found = []
    for number, pair in enumerate(held["pairs"]):
        argument = pair.get("argument", held.get("argument"))
        bad, good = (one if isinstance(one, dict) else {argument: one} for one in (pair["bad"], pair["good"]))
        tool = pair.get("tool", held.get("tool"))
        found.append((f"{number}: {pair['why']}", (tool, bad), (pair.get("twin", tool), good)))
    return found


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[aegis.Gate]:
    home = tmp_path_factory.mktemp("pairs")
    config = home / "aegis.yaml"
    config.write_text("version: 1\nprofile: standard\nlimits: {rate: unlimited}\n", encoding="utf-8")
    with closing(aegis.Gate.open(config, home=home)) as opened:
        yield opened


def is_allowed(gate: aegis.Gate, tool: str, arguments: dict[str, Any]) -> bool:
    return gate.decide(aegis.ToolCall(tool=tool, arguments=arguments)).outcome is Outcome.ALLOW


@pytest.mark.claim("DET-82")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dangerous_calls_and_their_twins_are_told_apart(path: Path, gate: aegis.Gate) -> None:
    wrong, total = [], 0
    for name, bad, good in pairs(path):
        total += 1
        missed, alarmed = is_allowed(gate, *bad), not is_allowed(gate, *good)
        if missed or alarmed:
            wrong.append(f"{name}:{' missed' if missed else ''}{' false alarm' if alarmed else ''}")
    assert len(wrong) <= (1 - LEAST_RIGHT) * total, "\n".join(wrong)


def test_there_are_pairs_enough() -> None:
    assert sum(len(pairs(path)) for path in FILES) >= 200
