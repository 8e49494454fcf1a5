"""What the fuzzer runs: bytes become a call and a result, and facts and content guards judge them.

Any exception is a defect.
"""

from __future__ import annotations

import json
from typing import Any, Final

from benchmarks.hostile import PIECES, ROLES, Judge, filled

from aegis.core.principal import Principal
from aegis.detect import extract
from aegis.detect.facts import ReadLimits
from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.base import ResultCase
from aegis.policy.guards.result import ResultContentGuard

_LONGEST: Final = 200_000  # characters of one value that a few bytes are repeated to
_NAMES: Final = (*ROLES.items(), ("command", "powershell"), ("command", "cmd"))
_JUDGE: Final = Judge()
_RESULTS: Final = ResultContentGuard(Scanner(load(builtin_folder()), cache=default_cache_folder()))
_NOBODY: Final = Principal(id="fuzz", roles=frozenset({"agent"}))


def run(data: bytes) -> None:
    """Judge the call and the result that `data` spells; its first two bytes choose role, shape and length."""
    if len(data) < 3:
        return
    role, tool = _NAMES[data[0] % len(_NAMES)]
    value = _value(data[1], data[2:])
    _JUDGE.judge(tool, {role: value})
    texts = extract(value, ReadLimits())
    _RESULTS.check_result(
        ResultCase(
            tool=tool,
            server=None,
            result=value,
            texts=texts,
            principal=_NOBODY,
            agent="",
            session="",
            entry=None,
            now=0,
        )
    )


def _value(shape: int, data: bytes) -> Any:
    text = data.decode("utf-8", "surrogateescape" if shape & 1 else "replace")
    kind = shape % 5
    if kind == 1:
        return filled(text, min(_LONGEST, 1 << (shape >> 3)))
    if kind == 2:
        return [filled(text, 1_900), *text.split("\n")[:500]]
    if kind == 3:
        return {piece: piece for piece in text.split(" ")[:500]}
    if kind == 4:
        try:
            return json.loads(text)
        except ValueError:  # includes text that is no JSON and digits beyond what Python reads
            return text
    return text


def seeds() -> list[bytes]:
    """One input for every piece in every role, and for the examples of every rule."""
    rules = load(builtin_folder()).rules
    texts = [*PIECES.values(), *(example.text for rule in rules for example in rule.examples if example.text)]
    return [
        bytes([number % len(_NAMES), number % 251]) + text[:4_096].encode("utf-8", "replace")
        for number, text in enumerate(texts)
    ]
