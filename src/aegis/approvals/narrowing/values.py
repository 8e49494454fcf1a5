"""One value against another: whether it is less of the same, as a number, prose, recipients, a path or a command."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Final

import re2

from aegis.guards.scope import recipients

MARKS: Final = frozenset({"[redacted]", "[REDACTED]", "***"})  # what may stand where words were struck out
_WORD: Final = re2.compile(r"\S+")
_DECIMAL: Final = re2.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_SEGMENT: Final = re2.compile(r"[\pL\pN_@+=,][\pL\pN_@+=,. -]*")  # a plain name: no dots, dashes or blanks in front
_PLAIN_COMMAND: Final = re2.compile(r"[A-Za-z0-9_@+=,./:-]+(?: [A-Za-z0-9_@+=,./:-]+)*")
# Programs that do the same to each of their operands, and whose options take no word of their own: with fewer
# operands they do less of the same.
_EACH: Final = frozenset({"cat", "md5sum", "rm", "rmdir", "sha256sum", "unlink"})


def is_lower(held: int | float | Decimal, changed: int | float | Decimal) -> bool:
    """Whether a number went toward zero, on its own side of it, and never to it: a limit of zero is often none.

    A whole number stays one, as a fraction of it may be cut to zero.
    """
    whole = isinstance(held, int) and not isinstance(changed, int)
    return not whole and (0 < changed <= held or held <= changed < 0)


def is_lower_text(held: str, changed: str) -> bool:
    """The same of numbers that are written as text."""
    if not (_DECIMAL.fullmatch(held) and _DECIMAL.fullmatch(changed)):
        return False
    return is_lower(Decimal(held), Decimal(changed))


def is_shortened(held: str, changed: str) -> bool:
    """Whether prose lost words, or had them struck out: every word of it stood there, in this order, as a whole.

    A word begins a line only where it did before, so that no header or order of its own can be made (CWE-93).
    """
    before, after = list(_WORD.finditer(held)), list(_WORD.finditer(changed))
    blanks = {held[one.end() : other.start()] for one, other in pairwise(before)}
    at = end = 0
    for word in after:
        gap, end = changed[end : word.start()], word.end()
        if word.group() in MARKS:
            if gap.strip(" ") and gap not in blanks:
                return False
            continue
        while at < len(before) and before[at].group() != word.group():
            at += 1
        if at == len(before):
            return False
        own = held[before[at - 1].end() if at else 0 : before[at].start()]
        if gap != own and gap.strip(" "):
            return False
        at += 1
    rest = held[before[-1].end() if before else 0 :]
    return len(after) <= len(before) and changed[end:] in ("", rest)


def are_fewer_recipients(held: str, changed: str) -> bool:
    """Whether every recipient stood there, written the same way."""
    known, kept = recipients.members(held), recipients.members(changed)
    before, after = recipients.readings(held), recipients.readings(changed)
    if not kept or not changed.isprintable() or before is None or after is None:
        return False
    return set(kept) <= set(known) and after <= before


def is_below(held: str, changed: str) -> bool:
    """Whether a path leads to something below the same place, in plain names; a list of things is no path."""
    if "," in held or ";" in held:
        return False
    start = held if held.endswith("/") else f"{held}/"
    if not held.strip() or not held.isprintable() or not changed.startswith(start):
        return False
    names = changed[len(start) :].split("/")
    return all(_SEGMENT.fullmatch(name) and not name.endswith((".", " ")) for name in names)


def is_less_of_a_command(held: str, changed: str) -> bool:
    """Whether a plain command names fewer files; anything that a shell would work out stays as it is."""
    if not (_PLAIN_COMMAND.fullmatch(held) and _PLAIN_COMMAND.fullmatch(changed)):
        return False
    return are_fewer_operands(held.split(" "), changed.split(" "))


def are_fewer_operands(held: Sequence[object], changed: Sequence[object]) -> bool:
    """Whether a command's words lost operands, and nothing else, where its program treats each for itself."""
    words = [word for word in held if isinstance(word, str)]
    kept = [word for word in changed if isinstance(word, str)]
    if len(words) != len(held) or len(kept) != len(changed) or not words or words[0] not in _EACH:
        return False
    if kept[:1] != words[:1] or not any(_is_operand(word) for word in kept[1:]):
        return False
    at = 1
    for word in kept[1:]:
        while at < len(words) and not _is_less_of_a_word(words[at], word):
            if not _is_operand(words[at]):
                return False
            at += 1
        if at == len(words):
            return False
        at += 1
    return all(_is_operand(word) for word in words[at:])


def _is_less_of_a_word(held: str, changed: str) -> bool:
    return held == changed or (_is_operand(held) and is_below(held, changed))


def _is_operand(word: str) -> bool:
    return not word.startswith("-")
