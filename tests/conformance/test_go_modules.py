"""The Go modules: the core needs nothing, and what is tested is all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import re2

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.claim("VEC-02")
def test_the_go_client_needs_nothing_beside_the_standard_library() -> None:
    assert "require" not in (ROOT / "sdk/go/go.mod").read_text()
    for path in (ROOT / "sdk/go").glob("*.go"):
        if not path.name.endswith("_test.go"):
            imported = re2.findall(r'(?m)^\s(?:import )?"([a-z0-9.]+/[^"]*)"', path.read_text())
            assert [one for one in imported if "." in one.split("/")[0]] == [], path.name


@pytest.mark.claim("VEC-02")
def test_every_go_module_is_tested_where_the_others_are() -> None:
    (listed,) = re2.findall(r"for module in ([^;]+);", (ROOT / "scripts/go.sh").read_text())
    found = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/go/**/go.mod")}
    assert set(listed.split()) == found


def test_an_example_in_go_is_short() -> None:
    examples = sorted((ROOT / "examples/go").glob("*/main.go"))
    assert len(examples) >= 6
    assert [path.name for path in examples if len(path.read_text().splitlines()) >= 40] == []
