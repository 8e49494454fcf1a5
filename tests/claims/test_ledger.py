"""The ledger of claims and the tests agree, both ways."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import re2
import yaml

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
LEDGER = ROOT / "docs" / "claims.yaml"
THREATS = ROOT / "docs" / "threat-model.md"
CLAIMS: list[dict[str, Any]] = yaml.safe_load(LEDGER.read_text())
BY_ID = {claim["id"]: claim for claim in CLAIMS}
ID = re2.compile(r"\b[A-Z]{3}-[0-9]{2}\b")


@cache
def functions(path: Path) -> dict[str, tuple[str, ...]]:
    """The test functions of a file, each with the claims that its markers name."""
    found: dict[str, tuple[str, ...]] = {}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            found[node.name] = tuple(_claims(node.decorator_list))
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":  # a contract suite that others run too
            found |= functions(ROOT / "src" / f"{(node.module or '').replace('.', '/')}.py")
    return found


def _claims(decorators: list[ast.expr]) -> Iterator[str]:
    for decorator in decorators:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.claim":
            for argument in decorator.args:
                assert isinstance(argument, ast.Constant)
                yield str(argument.value)


def marked() -> Iterator[tuple[str, str]]:
    """Every marker of the test suite, as (claim, test)."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for name, claims in functions(path).items():
            for claim in claims:
                yield claim, f"{path.relative_to(ROOT).as_posix()}::{name}"


def test_every_claim_has_an_id_of_its_own_a_sentence_and_a_test() -> None:
    assert [claim for claim, count in Counter(claim["id"] for claim in CLAIMS).items() if count > 1] == []
    for claim in CLAIMS:
        assert set(claim) == {"id", "claim", "tests"}, claim
        assert ID.fullmatch(claim["id"]), claim["id"]
        assert claim["tests"], claim["id"]
        assert claim["claim"].strip() and not claim["claim"].endswith("."), claim["id"]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["id"])
def test_every_test_that_a_claim_names_exists(claim: dict[str, Any]) -> None:
    for test in claim["tests"]:
        file, _, name = test.partition("::")
        path = ROOT / file
        assert path.is_file(), test
        assert name in functions(path), test


def test_every_marker_names_a_claim_that_names_its_test() -> None:
    wrong = [(claim, test) for claim, test in marked() if test not in BY_ID.get(claim, {"tests": []})["tests"]]
    assert wrong == []


def test_every_test_beside_this_one_proves_a_claim() -> None:
    proved = {test for claim in CLAIMS for test in claim["tests"]}
    here = {
        f"{path.relative_to(ROOT).as_posix()}::{name}"
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != Path(__file__).name
        for name in functions(path)
    }
    assert here - proved == set()


def test_the_threat_model_cites_every_claim_and_no_other() -> None:
    cited = {match.group() for match in ID.finditer(THREATS.read_text())}
    assert cited == set(BY_ID)


def test_threats_are_numbered_and_each_is_answered_by_claims() -> None:
    rows = [line for line in THREATS.read_text().splitlines() if line.startswith("| T-")]
    numbers = [row.split("|")[1].strip() for row in rows]
    assert all(re2.fullmatch(r"T-[0-9]{3}", number) for number in numbers), numbers
    assert len(set(numbers)) == len(numbers), "a threat keeps its number for good, and no two share one"
    assert [row for row in rows if not ID.search(row.rpartition("|")[0].rpartition("|")[2])] == []
