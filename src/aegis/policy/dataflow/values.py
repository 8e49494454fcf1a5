"""Typed values in text, in one spelling each, so that the same address is the same wherever it stands."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Literal, NamedTuple, get_args

import re2

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
_scan: Final = re2.compile(f"({_EMAIL})|({_URL})|({_WALLET})|({_IBAN})|({_HOST})|({_NUMBER})")
_KINDS: Final[tuple[ValueKind, ...]] = ("email", "url", "wallet", "account", "url", "account")
_DATE: Final = re2.compile(
    r"^[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|^[0-9]{1,2}[-/.][0-9]{1,2}[-/.][0-9]{4}|^[0-9]+\.[0-9]+$"
)
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
    found = _Found()
    for match in _scan.finditer(text):
        if not found.take(match[0], match.lastindex, match.start()):
            break
    return found.values


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

    def matches(self, pattern: re2._Regexp[str]) -> Iterator[tuple[int, int, int, int | None]]:
        """Each match: the number of its text, where it begins and ends there, and its last group."""
        number, starts, last = 0, self._starts, len(self._starts) - 1
        for match in pattern.finditer(self._data):
            start, end = match.span()
            while number < last and starts[number + 1] <= start:
                number += 1
            # A pattern that takes the sign before a word begins in front of the text.
            if number < last and start >= starts[number] + len(self.texts[number]):
                number += 1
            base = starts[number]
            yield number, max(0, start - base), end - base, match.lastindex


def find_all(joined: JoinedTexts) -> list[list[TypedValue]]:
    """`find_values` of each of the texts."""
    if not joined.is_plain:
        return [find_values(text) for text in joined.texts]
    found = [_NONE_FOUND] * len(joined.texts)
    for number, start, end, group in joined.matches(_scan):
        if found[number] is _NONE_FOUND:
            found[number] = _Found()
        found[number].take(joined.texts[number][start:end], group, start)
    return [one.values for one in found]


class _Found:
    """The values of one text: one that stands twice is one, and its first place counts."""

    __slots__ = ("count", "seen", "values")

    def __init__(self) -> None:
        self.count = 0
        self.seen: set[str] = set()
        self.values: list[TypedValue] = []

    def take(self, text: str, group: int | None, start: int) -> bool:
        """Take in one match; whether more are taken."""
        self.count += 1
        if self.count > MAX_FOUND:
            return False
        if text not in self.seen:
            self.seen.add(text)
            kind = _KINDS[(group or 1) - 1]
            if not (group == len(_KINDS) and _DATE.match(text)):
                normal = normalise(kind, text)
                if normal:
                    self.values.append(TypedValue(kind, normal, start, start + len(text)))
        return True


_NONE_FOUND: Final = _Found()


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


@lru_cache(maxsize=64)
def _keyed_state(key: bytes) -> blake2b:
    """The state of the hash before any value: only ever copied."""
    return blake2b(key=key, digest_size=_HASH_BYTES)
