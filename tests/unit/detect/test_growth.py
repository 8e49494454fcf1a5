"""What a text costs grows no faster than it: counted in calls of functions, which no machine makes faster or slower."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from aegis.detect import gather
from aegis.detect.facts import FactSubject, ReadLimits

_SMALL = 1_500  # characters


def _functions(tool: str, arguments: dict[str, str]) -> int:
    """The functions that reading a call enters, the interpreter's own ones too."""
    counted = 0

    def seen(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(seen)
    try:
        gather(FactSubject(tool=tool, server=None, arguments=arguments, limits=ReadLimits()))
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
