"""Unicode text as a reader sees it: compatibility forms, invisible characters and look-alikes undone."""

from __future__ import annotations

import unicodedata
from functools import cache, lru_cache
from typing import Final

import re2

from aegis.core.names import normalise_name
from aegis.facts.confusables import ASCII, LOOKALIKES
from aegis.facts.quick import one_of

# Unicode 15.1: general category Cf, variation selectors, and letters that are blank by nature.
_INVISIBLE: Final = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x0600, 0x0605), (0x061C, 0x061C), (0x06DD, 0x06DD), (0x070F, 0x070F),
    (0x0890, 0x0891), (0x08E2, 0x08E2), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0x2800, 0x2800), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB), (0x110BD, 0x110BD), (0x110CD, 0x110CD), (0x13430, 0x1343F),
    (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0001, 0xE0001), (0xE0020, 0xE007F), (0xE0100, 0xE01EF),
)  # fmt: skip
_DROP: Final = {code: None for first, last in _INVISIBLE for code in range(first, last + 1)}
# Tag characters carry a second, invisible ASCII text (Unicode 15.1, chapter 23.9).
_TAGS: Final = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_SKELETON: Final = str.maketrans(LOOKALIKES, ASCII) | {0x2044: "/", 0x2215: "/", 0x29F8: "/", 0x2216: "\\", 0x2024: "."}
_MARKS: Final = dict.fromkeys(code for code in range(0x0300, 0x0370))
_TAG_BYTES: Final = "\U000e0020".encode()[:2]  # how every tag character begins in UTF-8
_LEAST_TAGS: Final = 6
# Putting a run of marks into their order takes as long as its square; no script piles up more than these (UAX 15).
_PILED: Final = re2.compile(r"(\p{M}{30})\p{M}+")
# Blocks of Unicode whose characters may be ASCII in another form (NFKC).
_COMPATIBLE: Final = (range(0x80, 0x3400), range(0xA700, 0xA800), range(0xFB00, 0x10800), range(0x1CC00, 0x1FC00))
_LETTERS: Final = bytes(code if chr(code).isalpha() and code < 128 else ord(" ") for code in range(256))
_UNSEEN_CLASS: Final = "".join(f"\\x{{{first:X}}}-\\x{{{last:X}}}" for first, last in _INVISIBLE)
_PARTED: Final = re2.compile(f"[A-Za-z][{_UNSEEN_CLASS}]|[{_UNSEEN_CLASS}][A-Za-z]")
_CONTROLS: Final = r"[\x{202A}-\x{202E}\x{2066}-\x{2069}]"
_REORDERING: Final = re2.compile(_CONTROLS)
_SILENT: Final = r"[\x{200B}-\x{200F}\x{202A}-\x{202E}\x{2060}-\x{206F}\x{FEFF}\x{FE00}-\x{FE0F}\x{00AD}]{8,}"
_RUN: Final = re2.compile(_SILENT)
_UNSEEN: Final = one_of(_CONTROLS, _SILENT, r"(?:[\x{E0020}-\x{E007E}][^\x{E0020}-\x{E007E}]*){6}")  # `_LEAST_TAGS`


def unpiled(text: str) -> str:
    """The text with piles of marks cut to what a script uses, so that normalising it takes linear time."""
    return str(_PILED.sub(r"\1", text))


def skeleton(text: str) -> str:
    """NFKC, without invisible characters and combining marks, look-alikes as ASCII.

    Two texts with the same skeleton look the same (UTS 39). The result is at most 18 times as long.
    """
    visible = unpiled(text.translate(_DROP))
    folded = unicodedata.normalize("NFKD", visible).translate(_MARKS).translate(_SKELETON)
    return unicodedata.normalize("NFKC", folded)


def legible(text: str) -> str:
    """The text with its letters in their usual form and nothing invisible between them; empty where no word changes.

    Accents and other scripts stay: they are words of their own.
    """
    plain = text.translate(_usual_forms())
    return plain if _PARTED.search(text) or not _words(plain) <= _words(text) else ""


@cache
def _usual_forms() -> dict[int, str | None]:
    """What stands for each character that is ASCII in another form, or invisible; at most four characters."""
    forms = ((code, unicodedata.normalize("NFKC", chr(code))) for codes in _COMPATIBLE for code in codes)
    return {code: form for code, form in forms if form != chr(code) and form.isascii()} | _DROP


def _words(text: str) -> set[bytes]:
    return {word for word in text.encode("utf-8", "replace").translate(_LETTERS).split() if len(word) > 1}


@lru_cache(maxsize=4_096)
def name_skeleton(name: str) -> str:
    """The skeleton of a name of somebody or something: names that look the same have one, case and blanks aside."""
    return skeleton(normalise_name(name)).casefold().strip()


def tag_text(text: str) -> str:
    """The ASCII text that invisible tag characters spell; empty where there is none."""
    return "".join(chr(_TAGS[ord(char)]) for char in text if "\U000e0020" <= char <= "\U000e007e")


def has_reordering(text: str) -> bool:
    """Whether controls make the text be shown in another order than the one in which it is read (CVE-2021-42574)."""
    return not text.isascii() and _REORDERING.search(text) is not None


def may_be_unseen(together: str) -> bool:
    """Whether any of the texts that are lines of `together` can have hidden text or be shown in another order."""
    return not together.isascii() and bool(_UNSEEN(together))


def hidden_text(text: str) -> str:
    """Invisible characters that carry a message of their own; empty where there are none.

    Six tag characters, or a run of eight other invisible ones, never stand in honest text.
    """
    if text.isascii():
        return ""
    if "\U0001f3f4" not in text and _TAG_BYTES in text.encode("utf-8", "replace"):  # flags of regions hold tags
        tags = tag_text(text)
        if len(tags) >= _LEAST_TAGS:
            return tags
    match = _RUN.search(text)
    return f"{len(match.group())} invisible characters" if match is not None else ""
