"""Hosts in one spelling: every host that some parser would connect to (CWE-918, CWE-1286).

Parsers disagree about backslashes, userinfo and odd addresses; a URL is in scope only where every
host that one of them sees is.
"""

from __future__ import annotations

import unicodedata
from typing import Final
from urllib.parse import unquote

from aegis.core.addresses import Address, carried, read_address

MAX_CHARS: Final = 8_192
_STOPS: Final = ("/", "?", "#")
# Schemes of which the part behind the colon is an authority, with or without slashes (WHATWG URL, 3.1).
_SPECIAL: Final = ("http:", "https:", "ws:", "wss:", "ftp:")


def readings(text: str) -> frozenset[tuple[str, ...]] | None:
    """The labels of every host that a URL or bare host can lead to; `None` where it cannot be told."""
    value = text.strip(" ")
    if not value or len(value) > MAX_CHARS or not value.isprintable():
        return None
    found: set[tuple[str, ...]] = set()
    for spelled in {value, value.replace("\\", "/")}:
        authority = _authority(spelled)
        # RFC 3986 ends userinfo at the last `@`; older parsers at the first.
        hosts = {authority.rpartition("@")[2], authority.partition("@")[2] or authority}
        for host in hosts:
            labels = _labels(host)
            if labels is None:
                return None
            found.add(labels)
            # A translator or a tunnel connects to the IPv4 address that is written inside.
            address = read_address(labels[0]) if len(labels) == 1 else None
            found.update((str(one),) for one in (() if address is None else carried(address)))
    return frozenset(found)


def pattern_labels(text: str) -> tuple[str, ...] | None:
    """The labels of a host in a scope, where `*` is one label; an address is one label."""
    folded = text.rstrip(".").lower()
    if "*" in folded:
        return tuple(folded.split("."))
    return _labels(folded)


def _authority(text: str) -> str:
    lower = text.lower()
    scheme, separator, rest = text.partition("://")
    if not separator or any(stop in scheme for stop in _STOPS):
        rest = text
        for special in _SPECIAL:
            if lower.startswith(special):
                rest = text[len(special) :]
                break
        else:
            if text.startswith("//"):
                rest = text[2:]
    elif f"{scheme.lower()}:" in _SPECIAL:
        rest = rest.lstrip("/")  # WHATWG ignores further slashes
    for stop in _STOPS:
        rest = rest.partition(stop)[0]
    return rest


def _labels(host: str) -> tuple[str, ...] | None:
    """The labels of one host, its port left out; an address is one label in its usual form."""
    if host.startswith("["):
        inner, bracket, _ = host[1:].partition("]")
        return _address(inner.partition("%")[0]) if bracket else None
    address = read_address(host)
    if address is not None:
        return (_plain(address),)
    if host.count(":") > 1:
        return None
    name, colon, port = host.partition(":")
    if colon and port and not (port.isascii() and port.isdigit()):
        return None
    name = unicodedata.normalize("NFKC", unquote(name)).rstrip(".").lower()
    if not name or not name.isprintable() or any(char in "%/\\@:?#[] <>^|" for char in name):
        return None
    number = _lenient(name)
    if number is not None:
        return (number,)
    if not name.isascii():
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            return None
    labels = tuple(name.split("."))
    return None if "" in labels else labels


def _address(text: str) -> tuple[str, ...] | None:
    address = read_address(text)
    return None if address is None else (_plain(address),)


def _plain(address: Address) -> str:
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _lenient(name: str) -> str | None:
    """The address that `inet_aton` reads: one to four parts, each decimal, octal or hexadecimal."""
    parts = name.split(".")
    if len(parts) > 4 or not (parts[-1][:1].isdigit() and parts[-1].isascii()):
        return None
    numbers: list[int] = []
    for part in parts:
        base = 16 if part.startswith("0x") else 8 if len(part) > 1 and part.startswith("0") else 10
        digits = part[2:] if base == 16 else part
        if len(digits) > 12 or not digits.isalnum():
            return None
        try:
            numbers.append(int(digits, base))
        except ValueError:
            return None
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        return None
    value = last
    for place, number in enumerate(leading):
        value += number << (8 * (3 - place))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))
