"""Typed values in text, in one spelling each, so that the same address is the same wherever it stands."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Final, Literal, NamedTuple, get_args

import re2

from aegis.core.patterns import Lazy

ValueKind = Literal[
    "email", "phone", "account", "card", "wallet", "url", "host", "path", "id", "person", "address", "amount", "date",
    "secret", "text",
]  # fmt: skip
VALUE_KINDS: Final[tuple[ValueKind, ...]] = get_args(ValueKind)

MAX_FOUND: Final = 1_024  # values of one text: bounds what one result can make us remember
_HASH_BYTES: Final = 8

# One linear-time scan: an address of mail, an address of the web, a wallet, an account or any long number.
_EMAIL: Final = r"[\w.+%-]+@(?:[\w-]+\.)+[A-Za-z][\w-]+"
_URL: Final = r"(?:[a-zA-Z][a-zA-Z0-9+.-]+://|www\.)[^\s\x00<>\"'`\\\])}|,]+"
_WALLET: Final = r"\b(?:0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,})\b"
_IBAN: Final = r"\b[A-Z]{2}[0-9]{2}(?:[ -]?[0-9A-Z]{4}){2,7}(?:[ -]?[0-9A-Z]{1,4})?\b"
_HOST: Final = (
    r"\b(?:[a-zA-Z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|co|info|biz|xyz|site|online|ru|cn|uk|de|eu|me)\b"
    r"(?:/[^\s\x00<>\"'`\\\])}|,]*)?"
)
_NUMBER: Final = r"\+?\b[0-9](?:[ ().-]{0,2}[0-9]){6,}\b"
_PARTS: Final = (_EMAIL, _URL, _WALLET, _IBAN, _HOST, _NUMBER)
_scan: Final = Lazy("|".join(f"({part})" for part in _PARTS))
_places: Final = Lazy("|".join(_PARTS))  # where `_scan` matches: asking for no group costs less
_KINDS: Final[tuple[ValueKind, ...]] = ("email", "url", "wallet", "account", "url", "account")
_DATE: Final = Lazy(r"^[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|^[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}|^[0-9]+\.[0-9]+$")
_SIGNS: Final = frozenset("@.0123456789:")


class TypedValue(NamedTuple):
    """One value of a text: what it is, in its one spelling, and where it stands."""

    kind: ValueKind
    normal: str
    start: int
    end: int


def find_values(text: str) -> list[TypedValue]:
    """The addresses, accounts and long numbers of `text`, at most `MAX_FOUND`."""
    if _SIGNS.isdisjoint(text):
        return []
    found: dict[str, TypedValue | None] = {}
    for count, match in enumerate(_scan.finditer(text)):
        if count >= MAX_FOUND:
            break
        if match[0] not in found:
            found[match[0]] = _typed(match[0], match.lastindex, match.start())
    return [value for value in found.values() if value is not None]


class JoinedTexts:
    """Texts that are searched at once: a search of many short ones costs more than what it finds.

    Between two texts stands what no pattern reaches over.
    """

    def __init__(self, texts: Sequence[str]):
        self.texts = texts
        self._data = "\x00\n".join(texts).encode()
        self._starts: list[int] = []
        at = 0
        for text in texts:
            self._starts.append(at)
            at += len(text) + 2
        self.is_plain = len(self._data) == max(0, at - 2)  # ASCII: a byte is a character

    def matches(self, pattern: re2._Regexp[str]) -> Iterator[tuple[int, int, int]]:
        """Each match: the number of its text, and where it begins and ends there."""
        number, starts, last = 0, self._starts, len(self._starts) - 1
        for match in pattern.finditer(self._data):
            start, end = match.span()
            while number < last and starts[number + 1] <= start:
                number += 1
            # A pattern that takes the sign before a word begins in front of the text.
            if number < last and start >= starts[number] + len(self.texts[number]):
                number += 1
            base = starts[number]
            yield number, max(0, start - base), end - base

    def part_at(self, number: int, start: int) -> int | None:
        """Which part of a value's pattern matches there."""
        match = _scan.match(self._data, self._starts[number] + start)
        part: int | None = None if match is None else match.lastindex
        return part


def find_all(joined: JoinedTexts) -> list[list[TypedValue]]:
    """`find_values` of each of the texts."""
    if not joined.is_plain:
        return [find_values(text) for text in joined.texts]
    texts = joined.texts
    found: list[list[TypedValue]] = [[] for _ in texts]
    seen: set[tuple[int, str]] = set()
    counts: dict[int, int] = {}
    for number, start, end in joined.matches(_places):
        text = texts[number][start:end]
        counts[number] = count = counts.get(number, 0) + 1
        if count > MAX_FOUND or (number, text) in seen:
            continue
        seen.add((number, text))
        # What most values are can be seen: only an address of mail has that sign and no slash, unless it is a site's.
        if "@" in text and "/" not in text and not text.startswith("www."):
            found[number].append(TypedValue("email", text.strip(".").lower(), start, end))
            continue
        value = _typed(text, joined.part_at(number, start), start)
        if value is not None:
            found[number].append(value)
    return found


def _typed(text: str, part: int | None, start: int) -> TypedValue | None:
    """The value that a part of the pattern matched; a date is none."""
    kind = _KINDS[(part or 1) - 1]
    if part == len(_KINDS) and _DATE.match(text):
        return None
    normal = normalise(kind, text)
    return TypedValue(kind, normal, start, start + len(text)) if normal else None


def normal_texts(texts: Sequence[str]) -> list[str]:
    """`normalise` of each text as a text."""
    joined = "\x00".join(texts)
    if not joined.isascii() or joined.count("\x00") >= max(1, len(texts)):
        return [normalise("text", text) for text in texts]
    joined = joined.translate(_FOLDED).strip(" ")
    while "  " in joined:
        joined = joined.replace("  ", " ")
    return joined.replace(" \x00", "\x00").replace("\x00 ", "\x00").split("\x00") if texts else []


# Of every ASCII character its lower case, and a blank for what `str.split` takes for one.
_FOLDED: Final = "".join(" " if chr(code).isspace() else chr(code).lower() for code in range(128))


def normalise(kind: ValueKind, text: str) -> str:
    """The one spelling of a value of that kind; empty where nothing of it is left."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    if kind == "email":
        return text.strip().strip(".<>").removeprefix("mailto:").lower()
    if kind in {"url", "host"}:
        return _url(text)
    if kind in {"account", "card", "phone"}:
        return "".join(char for char in text.upper() if char.isalnum())
    if kind == "wallet":
        return text.strip().lower()
    return " ".join(text.casefold().split())


def _url(text: str) -> str:
    text = text.strip().rstrip(".,;:!?/").lower()
    _, sign, rest = text.partition("://")
    text = (rest if sign else text).removeprefix("www.")
    return text.partition("#")[0].rstrip("/")


def host_of(url: str) -> str:
    """The host of a normalised URL."""
    host = url.partition("/")[0].partition("?")[0].rpartition("@")[2]
    return host.partition(":")[0]


# Of every ASCII character itself where it is a letter or a digit, else a blank: what splits most texts into words.
_LETTERS: Final = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))


def tokens(text: str) -> list[str]:
    """The words of a text: runs of letters and digits of any script."""
    if text.isascii():
        return text.translate(_LETTERS).split()
    return "".join(char if char.isalnum() else " " for char in text).split()


def families(kind: ValueKind) -> str:
    """The letter under which values are hashed: kinds that are written alike are found under one."""
    return _FAMILY.get(kind, "t")


_FAMILY: Final[dict[ValueKind, str]] = {
    "email": "e", "url": "u", "host": "u", "account": "n", "card": "n", "phone": "n", "wallet": "w",
}  # fmt: skip


def keyed(key: bytes, family: str, normal: str) -> int:
    """The keyed hash of a value, 64 bits."""
    hashed = _keyed_state(key).copy()
    hashed.update(f"{family}{normal}".encode(errors="replace"))
    return int.from_bytes(hashed.digest())


def keyed_all(key: bytes, values: Sequence[str]) -> list[int]:
    """`keyed` of each value, which its family stands before."""
    begin, found = _keyed_state(key).copy, []
    for value in values:
        hashed = begin()
        hashed.update(value.encode(errors="replace"))
        found.append(hashed.digest())
    return [number for (number,) in _HASHED.iter_unpack(b"".join(found))]


_HASHED: Final = Struct(">Q")


@lru_cache(maxsize=64)
def _keyed_state(key: bytes) -> blake2b:
    """The state of the hash before any value: only ever copied."""
    return blake2b(key=key, digest_size=_HASH_BYTES)
