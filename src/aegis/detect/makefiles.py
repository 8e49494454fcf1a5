"""The command lines of a makefile, with what its own names stand for (GNU make's manual)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.files import MAX_FLOW

_SET_IN_MAKE: Final = Lazy(
    r"^(?:[\w./% -]+:\s*)?(?:export\s+|override\s+|private\s+)*([A-Za-z]\w*)\s*(:{0,3}|\?|\+)=\s*(.*?)\s*$"
)
_USED_IN_MAKE: Final = Lazy(r"\$[({]([A-Za-z]\w*)[)}]")
_MADE_OF: Final = 4  # definitions that a name is followed through
# Names that make, its rules or whoever calls it give a value (GNU make, 10.3 and 7.2.5); these are told as unknown.
_GIVEN_TO_MAKE: Final = frozenset({
    "AR", "AS", "CC", "CXX", "CPP", "FC", "LD", "LEX", "YACC", "MAKE", "CURDIR", "SHELL", "MAKEFLAGS", "MAKEFILE_LIST",
    "HOME", "PWD", "USER", "PATH", "TMPDIR", "RM", "DESTDIR", "PREFIX", "prefix", "MAKECMDGOALS",
})  # fmt: skip


def of_make(lines: Sequence[str]) -> Iterator[str]:
    """The command lines of a makefile, with the values of its own names; one that nothing sets is empty."""
    known: dict[str, str] = {}
    others = False
    for line in lines:
        match = None if line.startswith("\t") else _SET_IN_MAKE.match(line)
        if match is not None and len(match.group(3)) <= _LONGEST_VALUE:
            name, sign, value = match.groups()
            before = known.get(name)
            if before is None or sign != "?":  # what is set last holds, wherever it is used
                known[name] = f"{before} {value}"[:_LONGEST_VALUE] if sign == "+" and before is not None else value
        others = others or line.startswith(("include ", "-include ", "define ", "sinclude "))
    for line in lines:
        if not line.startswith("\t"):
            continue
        text = line
        for _ in range(_MADE_OF):
            if "$" not in text or len(text) > MAX_FLOW:
                break
            text = _USED_IN_MAKE.sub(
                lambda use: known.get(use.group(1), _unset(use.group(1), others or not known)), text
            )[:MAX_FLOW]
        yield text.replace("$$", "$").strip().lstrip("@-+")


_LONGEST_VALUE: Final = 512


def _unset(name: str, others: bool) -> str:
    return f"${{{name}}}" if others or name in _GIVEN_TO_MAKE else ""
