"""The substitutions of `sed`: what they look for, and what they leave in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import re2

from aegis.core.patterns import Lazy


def substitutes(scripts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The substitutions of `sed` scripts: pattern, what stands in its place, and flags."""
    for script in scripts:
        at = 0
        while (at := _past(script, at, " \t\n;{}0123456789,$")) < len(script):
            sign = script[at + 1 : at + 2]
            if script[at] in "sy" and len(script) - at > 3 and not sign.isalnum() and not sign.isspace():
                parts = _parts(script, at + 2, sign)
                if parts is None:
                    return
                left, right, end = parts
                if script[at] == "y":
                    at = end
                    yield from ((str(re2.escape(one)), other, "g") for one, other in zip(left, right, strict=False))
                    continue
                at = _past(script, end, "gipPeIM0123456789")
                yield left, right, script[end:at]
            else:
                while at < len(script) and script[at] not in "\n;":
                    at += 1


def _past(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


def _parts(text: str, at: int, sign: str) -> tuple[str, str, int] | None:
    """What stands before the first and the second `sign` that no backslash quotes, and where what follows begins."""
    found: list[str] = []
    piece: list[str] = []
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            piece.append(text[at + 1] if text[at + 1] == sign else text[at : at + 2])
            at += 2
            continue
        at += 1
        if char == sign:
            found.append("".join(piece))
            piece = []
            if len(found) == 2:
                return found[0], found[1], at
        else:
            piece.append(char)
    return None


_GROUP: Final = Lazy(r"\\?\(([^()\\]{0,80})\\?\)")
_BACK: Final = Lazy(r"\\([1-9])")


def left_by(script: str) -> str:
    """Return a script of `sed` with what its substitutions look for taken out, and put in where they name a group."""
    for pattern, instead, _ in substitutes([script]):
        groups = _GROUP.findall(pattern)[:9]
        made = str(_BACK.sub(lambda found, groups=groups: "".join(groups[int(found.group(1)) - 1 :][:1]), instead))
        script = script.replace(pattern, "", 1).replace(instead, made, 1)
    return script
