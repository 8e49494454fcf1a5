"""Typed values in text, in one spelling each, so that the same address is the same wherever it stands."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
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
_URL: Final = r"(?:[a-zA-Z][a-zA-Z0-9+.-]+://|www\.)[^\s<>\"'`\\\])}|,]+"
_WALLET: Final = r"\b(?:0x[0-9a-fA-F]{40}|bc1[a-z0-9]{20,})\b"
_IBAN: Final = r"\b[A-Z]{2}[0-9]{2}(?:[ -]?[0-9A-Z]{4}){2,7}(?:[ -]?[0-9A-Z]{1,4})?\b"
_HOST: Final = (
    r"\b(?:[a-zA-Z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|co|info|biz|xyz|site|online|ru|cn|uk|de|eu|me)\b"
    r"(?:/[^\s<>\"'`\\\])}|,]*)?"
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


def find_values(text: str) -> Iterator[TypedValue]:
    """The addresses, accounts and long numbers of `text`, at most `MAX_FOUND`."""
    if _SIGNS.isdisjoint(text):
        return
    seen: set[str] = set()  # a value that stands twice is one: the first place counts
    for number, match in enumerate(_scan.finditer(text)):
        if number == MAX_FOUND:
            return
        found = match[0]
        if found in seen:
            continue
        seen.add(found)
        kind = _KINDS[(match.lastindex or 1) - 1]
        if kind == "account" and match.lastindex == len(_KINDS) and _DATE.match(found):
            continue
        normal = normalise(kind, found)
        if normal:
            yield TypedValue(kind, normal, match.start(), match.end())


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


def families(kind: ValueKind) -> str:
    """The letter under which values are hashed: kinds that are written alike are found under one."""
    return _FAMILY.get(kind, "t")


_FAMILY: Final[dict[ValueKind, str]] = {
    "email": "e", "url": "u", "host": "u", "account": "n", "card": "n", "phone": "n", "wallet": "w",
}  # fmt: skip


def keyed(key: bytes, family: str, normal: str) -> int:
    """The keyed hash of a value, 64 bits."""
    return int.from_bytes(
        blake2b(f"{family}{normal}".encode(errors="replace"), key=key, digest_size=_HASH_BYTES).digest()
    )
