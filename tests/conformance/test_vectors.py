"""The vectors that every implementation shares are what this package computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vectors

FOLDER = Path(__file__).resolve().parents[2] / "conformance"


@pytest.mark.claim("VEC-01")
@pytest.mark.parametrize("name", sorted(vectors.FILES))
def test_a_file_of_vectors_is_what_this_package_computes(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="ascii") == vectors.written(name)


def test_every_file_of_vectors_is_made_here_and_described() -> None:
    page = (FOLDER / "README.md").read_text()
    found = {path.name for path in FOLDER.glob("*.json")}
    assert found == set(vectors.FILES)
    assert [name for name in found if f"`{name}`" not in page] == []


def test_every_case_of_the_files_that_fail_closed_is_a_refusal() -> None:
    cases = json.loads((FOLDER / "fail_closed.json").read_text())["cases"]
    assert len(cases) > 50
    assert {case["expect"]["decision"]["decision"] for case in cases} == {"block"}
