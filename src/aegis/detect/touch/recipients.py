"""Recipients by their address: what a mail system delivers to, not the name it is shown under."""

from __future__ import annotations

import unicodedata
from typing import Final

from aegis.core.patterns import Lazy

MAX_CHARS: Final = 65_536
MAX_RECIPIENTS: Final = 1_000
_ADDRESS: Final = Lazy(r"[a-z0-9.!#$&'*+/=?^_`{|}~-]{1,64}@[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_CHANNEL: Final = Lazy(r"[#@+]?[a-z0-9][a-z0-9 ._:/-]{0,127}")


def readings(text: str) -> frozenset[tuple[str, ...]] | None:
    """Every recipient of a list as (local part, domain), others as (name,); `None` where one cannot be read."""
    value = unicodedata.normalize("NFKC", text)
    if not value.strip() or len(value) > MAX_CHARS or not value.replace("\r\n", "").isprintable():
        return None
    if value.lower().startswith("mailto:"):
        value = value[7:].partition("?")[0]
    parts = members(value)
    if not parts or len(parts) > MAX_RECIPIENTS:
        return None
    found = set()
    for part in parts:
        one = _recipient(part)
        if one is None:
            return None
        found.add(one)
    return frozenset(found)


def looks_like_address(text: str) -> bool:
    """Whether the whole text is one address, plain or in angle brackets."""
    if "@" not in text or len(text) > 512:
        return False
    one = _recipient(text)
    return one is not None and len(one) == 2


def pattern_parts(text: str) -> tuple[str, ...]:
    """A recipient in a scope: `local@domain`, where `*` stands for any part of either half."""
    local, at, domain = text.lower().rpartition("@")
    return (local, domain) if at and local else (text.lower(),)


def members(value: str) -> list[str]:
    """The members of a list as they are written; commas and semicolons inside a quoted name do not divide."""
    parts, start, quoted = [], 0, False
    for at, char in enumerate(value):
        if char == '"':
            quoted = not quoted
        elif char in ",;" and not quoted:
            parts.append(value[start:at])
            start = at + 1
    parts.append(value[start:])
    return [part.strip() for part in parts if part.strip()]


def _recipient(text: str) -> tuple[str, ...] | None:
    value = text.strip().lower()
    if value.endswith(">"):
        # RFC 5322, 3.4: what stands in the brackets is the address; a second bracket is another reading.
        name, bracket, rest = value.partition("<")
        if not bracket or "<" in rest or ">" in rest[:-1] or ("@" in name and '"' not in name):
            return None
        value = rest[:-1].strip()
        if "@" not in value:
            return None
    if "@" in value[1:]:
        if not _ADDRESS.fullmatch(value):
            return None
        local, _, domain = value.rpartition("@")
        return None if ".." in domain else (local, domain.rstrip("."))
    return (value,) if _CHANNEL.fullmatch(value) else None
