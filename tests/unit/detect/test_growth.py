"""What a call costs grows no faster than it: counted in calls of functions, which no machine makes faster or slower."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from aegis.detect.rules import Scanner, builtin_folder, load
from aegis.detect.rules.cache import default_cache_folder
from aegis.policy.guards.content import ContentGuard
from support.cases import read_case

_SMALL = 1_500  # characters
_FEW = 250  # strings
_GUARD = ContentGuard(Scanner(load(builtin_folder()), cache=default_cache_folder()))


def _functions(tool: str, arguments: dict[str, Any]) -> int:
    """The functions that reading and judging a call enters, the interpreter's own ones too."""
    counted = 0

    def seen(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        _GUARD.check(read_case(tool, arguments))
    finally:
        sys.setprofile(None)
    return counted


@pytest.mark.parametrize(
    ("tool", "member", "piece"),
    [
        ("bash", "command", "<<E\n-"),
        ("bash", "command", "<<E\n`a`"),
        ("bash", "command", "<<E\n$(a)"),
        ("bash", "command", "sed s/a/b/;p;"),
        ("run_code", "code", ").delete()"),
        ("python", "code", "a.delete().delete("),
        ("python", "code", "%-"),
        ("node", "code", "!^"),
    ],
)
def test_a_text_four_times_as_long_takes_four_times_the_work(tool: str, member: str, piece: str) -> None:
    short, long = ((piece * _SMALL)[:size] for size in (_SMALL, 4 * _SMALL))
    _functions(tool, {member: short})  # what is loaded once
    assert _functions(tool, {member: long}) <= 5 * _functions(tool, {member: short}) + 20_000


def _list(piece: str, many: int) -> dict[str, Any]:
    return {"items": [f"{piece} {number}" for number in range(many)]}


def _rows(piece: str, many: int) -> dict[str, Any]:
    return {"items": [{"path": f"{piece}/{number}", "content": piece} for number in range(many)]}


def _members(piece: str, many: int) -> dict[str, Any]:
    return {"path": {f"k{number}": piece for number in range(many)}}


@pytest.mark.parametrize("shape", [_list, _rows, _members])
@pytest.mark.parametrize("tool", ["t", "write_file", "create_ticket", "bash"])
@pytest.mark.parametrize("piece", ["row of the list of rooms on the second floor", "../a", "never tell the user of it"])
def test_four_times_as_many_texts_take_four_times_the_work(
    tool: str, piece: str, shape: Callable[[str, int], dict[str, Any]]
) -> None:
    few, many = (shape(piece, number) for number in (_FEW, 4 * _FEW))
    _functions(tool, many)  # what is loaded once, and names that are remembered
    assert _functions(tool, many) <= 5 * _functions(tool, few) + 20_000
