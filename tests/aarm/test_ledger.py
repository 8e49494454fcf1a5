"""The ledger of AARM and the tests agree: what is cited exists, what is here is cited, what is not met is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from claims.test_ledger import functions

ROOT = Path(__file__).resolve().parents[2]
LEDGER: list[dict[str, Any]] = yaml.safe_load((ROOT / "docs" / "aarm.yaml").read_text())


def parts() -> Iterator[tuple[str, dict[str, Any]]]:
    for requirement in LEDGER:
        for part in requirement["parts"]:
            yield requirement["id"], part


def test_every_requirement_is_there_in_order() -> None:
    assert [requirement["id"] for requirement in LEDGER] == [f"R{number}" for number in range(1, len(LEDGER) + 1)]
    assert len(LEDGER) == 8
    for requirement in LEDGER:
        assert set(requirement) == {"id", "level", "title", "text", "parts"}
        assert requirement["level"] in {"MUST", "SHOULD"}


def test_a_part_has_tests_or_says_what_is_missing() -> None:
    for name, part in parts():
        assert set(part) in ({"says", "tests"}, {"says", "missing"}), (name, part)


@pytest.mark.parametrize("test", sorted({test for _, part in parts() for test in part.get("tests", [])}))
def test_every_cited_test_exists(test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(ROOT / file)


def test_every_test_beside_this_one_is_cited() -> None:
    here = set(functions(Path(__file__).with_name("test_requirements.py")))
    cited = {test.partition("::")[2] for _, part in parts() for test in part.get("tests", [])}
    assert here <= cited
