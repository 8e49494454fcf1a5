"""Our own attacks and look-alikes, each through the whole policy of the built-in configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from aegis.cli.corpus import judge
from aegis.config.compile import compile_policy
from aegis.config.config import load_config
from aegis.detect.rules.cache import default_cache_folder

FOLDER = Path(__file__).parents[1] / "regression"
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
POLICY = compile_policy(load_config(), cache=default_cache_folder())


def record(family: dict[str, Any], item: Any, label: str) -> dict[str, Any]:
    common = {"id": "case", "source": "own", "family": "own", "label": label, "needs_context": False}
    if family.get("where") == "result":
        return {**common, "tool": "fetch", "args": {}, "where": "result", "result": item}
    call = item if isinstance(item, dict) else {"tool": family["tool"], "arguments": {family["argument"]: item}}
    return {**common, "tool": call["tool"], "args": call["arguments"], "where": "call"}


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("label", ["attack", "benign"])
def test_attacks_are_stopped_and_look_alikes_pass(name: str, label: str) -> None:
    family = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    items = family["attacks" if label == "attack" else "benign"]
    judged = [judge(POLICY, record(family, item, label)) for item in items]
    wrong = [(item.record["args"] or item.record["result"], item.rules) for item in judged if item.wrong]
    assert wrong == []


def test_there_are_as_many_look_alikes_as_attacks() -> None:
    families = [yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")) for name in FAMILIES]
    attacks = sum(len(family["attacks"]) for family in families)
    assert attacks >= 300
    assert sum(len(family["benign"]) for family in families) >= attacks
