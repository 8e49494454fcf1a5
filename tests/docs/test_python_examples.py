"""The examples in Python are short, are those of the page of frameworks, and run.

Those of frameworks run where the framework is tested (`tests/frameworks/test_quickstart.py` runs the page's).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from aegis.cli.demo.provider import Call, ScriptedProvider, Turn

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "python"
PAGE = ROOT / "docs" / "howto" / "hook-a-framework.md"
QUICKSTART = re.compile(r"<!-- not run: runs where `(\w+)` is tested -->\n```python\n(.*?\n)```", re.DOTALL)
INJECTION = Call(tool="find_customer", arguments={"name": "x' OR '1'='1' --"}, id="call_find_0123456789")
ANN = Call(tool="find_customer", arguments={"name": "Ann"}, id="call_ann_01234567890")
HERE = ("openai_agent", "anthropic_agent", "protected_function")


def test_every_example_is_short_and_every_framework_has_the_one_of_its_page() -> None:
    page = {f"{name}_agent": code for name, code in QUICKSTART.findall(PAGE.read_text(encoding="utf-8"))}
    found = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert all(len(text.splitlines()) < 40 for text in found.values())
    assert {name: text for name, text in found.items() if name not in HERE} == page


@pytest.mark.parametrize("name", HERE)
def test_an_example_refuses_the_injection_and_goes_on(name: str, tmp_path: Path) -> None:
    with ScriptedProvider([Turn(calls=(ANN, INJECTION)), Turn(text="done")]) as provider:
        url = provider.anthropic_url if name == "anthropic_agent" else provider.url
        done = subprocess.run(
            [sys.executable, "-W", "ignore", EXAMPLES / f"{name}.py"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "PROVIDER_URL": url, "AEGIS_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = str([asked.body for asked in provider.asked]) + done.stdout
    assert "one customer called Ann" in told
    assert "one customer called x" not in told
    assert "attack_detected" in told
