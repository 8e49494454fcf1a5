"""Unicode text as a reader sees it: compatibility forms, invisible characters and look-alikes undone."""

from __future__ import annotations

import sys
import unicodedata
from typing import Final

from aegis.facts.confusables import ASCII, LOOKALIKES

_INVISIBLE: Final = tuple(
    code
    for code in range(sys.maxunicode + 1)
    if unicodedata.category(chr(code)) == "Cf"
    or 0xFE00 <= code <= 0xFE0F  # variation selectors
    or 0xE0100 <= code <= 0xE01EF
    or code in (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, 0x2800)  # blank by nature
)
_DROP: Final = dict.fromkeys(_INVISIBLE)
# Tag characters carry a second, invisible ASCII text (Unicode 15.1, chapter 23.9).
_TAGS: Final = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_SKELETON: Final = str.maketrans(LOOKALIKES, ASCII) | {0x2044: "/", 0x2215: "/", 0x29F8: "/", 0x2216: "\\", 0x2024: "."}
_MARKS: Final = dict.fromkeys(code for code in range(0x0300, 0x0370))
_LEAST_TAGS: Final = 6
_LEAST_RUN: Final = 8


def skeleton(text: str) -> str:
    """NFKC, without invisible characters and combining marks, look-alikes as ASCII; lower case.

    Two texts with the same skeleton look the same (UTS 39). The result is at most 18 times as long.
    """
    visible = text.translate(_DROP)
    folded = unicodedata.normalize("NFKD", visible).translate(_MARKS).translate(_SKELETON)
    return unicodedata.normalize("NFKC", folded)


def tag_text(text: str) -> str:
    """The ASCII text that invisible tag characters spell; empty where there is none."""
    return "".join(chr(_TAGS[ord(char)]) for char in text if "\U000e0020" <= char <= "\U000e007e")


def hidden_text(text: str) -> str:
    """Invisible characters that carry a message of their own; empty where there are none.

    Six tag characters, or a run of eight other invisible ones, never stand in honest text.
    """
    if text.isascii():
        return ""
    tags = tag_text(text)
    if len(tags) >= _LEAST_TAGS and "\U0001f3f4" not in text:  # flags of regions are spelled with tags
        return tags
    run = longest = 0
    for char in text:
        run = run + 1 if ord(char) in _DROP else 0
        longest = max(longest, run)
    return f"{longest} invisible characters" if longest >= _LEAST_RUN else ""
