"""Calls of which some member is not what its reader expects: whatever stands there, they are read."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.gather import gather

PAIRS: Final = Path(__file__).parents[1] / "unit" / "detect" / "pairs"
PIECES: Final = ("\ud800", "\x00", "\u202e", "{{", "${", "$(", "`", '"', "'", "\\", "\n", "((((", "]]", "<<", "9" * 400)
VALUES: Final[tuple[Any, ...]] = (
    None, True, -1, 2**70, 1e308, "", "\ud800", [], {}, [[]], [None], {"": ""}, {"\ud800": ["rm", "-rf", "/etc"]},
    ["\ud800", {"\ud800": 1}], {"a": {"b": {"command": "sh", "args": ["-c", "\ud800"]}}},
)  # fmt: skip


def mangled(value: Any, chance: random.Random) -> Any:
    """A value of the same shape in which some members, names and pieces of text are others."""
    if chance.random() < 0.08:
        return chance.choice(VALUES)
    if isinstance(value, dict):
        odd = ((name + chance.choice(PIECES) if chance.random() < 0.05 else name) for name in value)
        return {name: mangled(inner, chance) for name, inner in zip(odd, value.values(), strict=True)}
    if isinstance(value, list):
        return [mangled(inner, chance) for inner in value]
    if isinstance(value, str) and chance.random() < 0.5:
        at = chance.randrange(len(value) + 1)
        return value[:at] + chance.choice(PIECES) + value[at + chance.randrange(8) :]
    return value


@pytest.mark.parametrize("path", sorted(PAIRS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_call_is_read_whatever_stands_in_its_members(path: Path) -> None:
    held, chance = yaml.safe_load(path.read_text(encoding="utf-8")), random.Random(path.stem)
    for pair in held["pairs"]:
        bad = (
            pair["bad"] if isinstance(pair["bad"], dict) else {pair.get("argument", held.get("argument")): pair["bad"]}
        )
        arguments = {name: mangled(inner, chance) for name, inner in bad.items()}
        gather(FactSubject(
            tool=pair.get("tool", held.get("tool")), server=None, arguments=arguments, limits=ReadLimits()
        ))  # fmt: skip


def test_numbers_that_no_program_takes_are_written_out() -> None:
    arguments = {"Bucket": "b", "Policy": {"Statement": [{"Effect": 2**70, "Principal": "*"}]}}
    facts = gather(FactSubject(tool="aws_s3_put_bucket_policy", server=None, arguments=arguments, limits=ReadLimits()))
    assert not facts.texts.limits
