"""`pytest --aegis-coverage` in somebody's own tests: a body that runs without a decision fails the run, by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.shell import environment

TESTS = """
from langchain_core.tools import tool


@tool
def find_customer(name: str) -> str:
    "Find a customer."
    return "found"


def test_a_tool():
    assert find_customer.{call} == "found"
"""


@pytest.mark.parametrize(
    ("call", "code"), [("invoke({'name': 'Ann'})", 0), ("_run('Ann', config={})", 1)], ids=["decided", "uncovered"]
)
def test_an_uncovered_body_fails_the_run_and_is_named(tmp_path: Path, call: str, code: int) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS.replace("{call}", call))
    for option in ([], ["--aegis-coverage"]):
        finished = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *option, "test_theirs.py"],
            cwd=tmp_path,
            env=environment({"AEGIS_HOME": str(tmp_path / "home")}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert finished.returncode == (code if option else 0), finished.stdout
    assert ("`find_customer` ran without a decision" in finished.stdout) is bool(code)
