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


DECIDED, UNCOVERED = "invoke({'name': 'Ann'})", "_run('Ann', config={})"
# What other packages bring takes seconds to load, and nothing of theirs is looked at.
OTHERS = ("cacheprovider", "langsmith_plugin", "schemathesis", "playwright", "hypothesispytest", "xdist")


@pytest.mark.parametrize(
    ("call", "options", "code"),
    [(DECIDED, ["--aegis-coverage"], 0), (UNCOVERED, [], 0), (UNCOVERED, ["--aegis-coverage"], 1)],
    ids=["decided", "unasked", "uncovered"],
)
def test_an_uncovered_body_fails_the_run_and_is_named(tmp_path: Path, call: str, options: list[str], code: int) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS.replace("{call}", call))
    without = [word for name in OTHERS for word in ("-p", f"no:{name}")]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", *without, *options, "test_theirs.py"],
        cwd=tmp_path,
        env=environment({"AEGIS_HOME": str(tmp_path / "home")}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == code, finished.stdout
    assert ("`find_customer` ran without a decision" in finished.stdout) is bool(code)
