"""Text that somebody else wrote, shown so that it reads as what it is.

Controls, characters that turn the direction of text, and letters that look like others are marked; everything
is escaped. What is shown is what an approval binds, so nothing is left out.
"""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Final

from markupsafe import Markup, escape

from aegis.facts.confusables import ASCII, LOOKALIKES

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PLAIN: Final = frozenset("\n\t")
# Blank, and not the space that everybody expects.
_FILLERS: Final = frozenset(
    "\u115f\u1160\u3164\uffa0\u2800\u034f\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u202f\u205f\u3000"
)


@cache
def _lookalikes() -> dict[str, str]:
    return {char: seen for char, seen in zip(LOOKALIKES, ASCII, strict=True) if unicodedata.category(char)[0] == "L"}


def visible(value: object) -> Markup:
    """`value` as escaped HTML in which nothing is invisible."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return escape(text)
    marks = _lookalikes() if not _speaks_another_script(text) else {}
    parts: list[Markup] = []
    for char in text:
        if (char < "\u0080" and char.isprintable()) or char in _PLAIN:
            parts.append(escape(char))
        elif char in _FILLERS or unicodedata.category(char) in _HIDDEN or "\ufe00" <= char <= "\ufe0f":
            parts.append(_marked("hidden-char", char, f"U+{ord(char):04X}", unicodedata.name(char, "control")))
        elif char in marks:
            parts.append(_marked("lookalike", char, char, f"{unicodedata.name(char, '')}, looks like {marks[char]}"))
        else:
            parts.append(escape(char))
    return Markup("").join(parts)


def ticked(value: str) -> Markup:
    """A message of ours: what stands between backticks is somebody else's, and is shown as code."""
    parts = [visible(part) for part in value.split("`")]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def hint(value: str) -> Markup:
    """A hint of an error as a sentence of a page."""
    whole = ticked(value[:1].upper() + value[1:])
    return whole if value.endswith((".", "?")) else whole + "."


def short(value: object, length: int = 80) -> str:
    """The beginning of a text for lists; whatever is decided about is shown whole elsewhere."""
    text = str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


def _speaks_another_script(text: str) -> bool:
    """Whether the text is mostly not Latin: Greek in a Greek sentence looks like nothing else."""
    letters = [char for char in text if char.isalpha()]
    return len(letters) > 0 and sum(char.isascii() for char in letters) * 2 < len(letters)


def _marked(name: str, char: str, shown: str, told: str) -> Markup:
    title = f"U+{ord(char):04X} {told}".strip()
    return Markup('<span class="{}" title="{}">{}</span>').format(name, title, shown)
