"""URLs and hosts: where a request would really go (server-side request forgery, CWE-918)."""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

from aegis.core.addresses import Address, carried, is_public, read_address
from aegis.core.patterns import Lazy
from aegis.detect.fold import skeleton, unpiled
from aegis.detect.quick import remembered

METADATA: Final = frozenset({
    "169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200", "192.0.0.192", "fd00:ec2::254",
    "fd00:ec2::23", "fd20:ce::254", "metadata.google.internal", "metadata.goog", "metadata.azure.com", "metadata",
    "instance-data", "instance-data.ec2.internal", "metadata.tencentyun.com", "168.63.129.16",
})  # fmt: skip


_QUAD: Final = 4
_MOST_LABELS: Final = 32
_LONGEST_HOST: Final = 4_096  # characters; no resolver takes a tenth of them
_LONGEST_LABEL: Final = 63
_OCTETS: Final = frozenset(map(str, range(256)))
_SPELLING: Final = "0123456789abcdefx."  # of what the numbers of an address are written


class Target(NamedTuple):
    """Where a URL or host leads: scheme, host as a resolver reads it, and what is odd about it."""

    scheme: str
    host: str
    address: str
    odd_spelling: bool
    userinfo: str


def read_target(text: str) -> Target | None:
    """The target of a URL or bare host; `None` for text that names none."""
    value = text.strip()
    scheme, separator, rest = value.partition("://")
    if not separator:
        scheme, rest = "", value.removeprefix("//")
    if " " in scheme:
        return None
    authority = rest
    for stop in ("/", "?", "#", "\\"):
        authority = authority.partition(stop)[0]
    userinfo, at, host = authority.rpartition("@")
    host = host if at else authority
    if host.startswith("["):
        host = host[1:].partition("]")[0].partition("%")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    host = host.rstrip(".").lower()
    if not host or len(host) > _LONGEST_HOST or len(host.split(None, 1)) > 1 or host[-1].isspace() or host[0].isspace():
        return None
    address, odd = _address(host, schemed=bool(scheme))
    return Target(scheme.lower(), host, address, odd, userinfo)


def is_metadata(target: Target) -> bool:
    """Whether this is a cloud's metadata service, however its address is spelled."""
    return target.host in METADATA or any(str(one) in METADATA for one in _addresses(target))


_NAMED: Final = "[0123456789fFiImM"  # what the hosts of metadata services begin with, in some spelling
_LONGEST_WORD: Final = 2_048  # characters of a word that is looked at as an address though no scheme says so


def names_metadata(word: str) -> bool:
    """Whether a word without a scheme is the address of a metadata service, or leads to a place on it.

    A number alone, or a host without a dot, is one only with a place behind it.
    """
    if word[:1] not in _NAMED or len(word) > _LONGEST_WORD or not ("." in word or ":" in word or "/" in word):
        return False
    target = read_target(word)
    if target is None or target.scheme or not is_metadata(target):
        return False
    return "." in target.host or ":" in target.host or (bool(target.address) and "/" in word)


@remembered
def asks_metadata(word: str) -> bool:
    """Whether a word of a program that goes out over the network names a metadata service, in whichever spelling."""
    value = (word.partition("=")[2] if word[:1] == "-" else word).lstrip("/")
    target = read_target(value) if value and len(value) <= _LONGEST_WORD else None
    if target is None or target.scheme in _OTHER_SCHEMES:
        return False
    return is_metadata(target) and (target.host not in _BARE or any(place in value.lower() for place in _ASKED))


_BARE: Final = frozenset({"metadata", "instance-data"})  # names that can be a branch or a folder
_ASKED: Final = ("/computemetadata", "/latest", "/metadata", "/openstack", "/opc/")  # where such a service answers
_OTHER_SCHEMES: Final = frozenset({"file", "data", "s3", "gs"})


def is_local(target: Target) -> bool:
    """Whether this is the machine itself or its link: loopback, unspecified, link-local."""
    if target.host == "localhost" or target.host.endswith((".localhost", ".localdomain")):
        return True
    if not target.address:
        return is_wildcard_name(target)
    return any(one.is_loopback or one.is_unspecified or one.is_link_local for one in _addresses(target))


def is_look_alike(target: Target) -> bool:
    """Whether a label of a name only looks like ASCII letters: they are of another script, alone or mixed (UTS 39)."""
    return any(
        not label.isascii() and not _is_latin(label) and skeleton(label).isascii()
        for label in map(_unicode_label, target.host.split(".")[-_MOST_LABELS:])
    )


def _is_latin(label: str) -> bool:
    """Whether every letter is Latin or ASCII: accents make a word, not a disguise."""
    composed = unicodedata.normalize("NFKC", unpiled(label))
    return all(char.isascii() or unicodedata.name(char, "").startswith("LATIN") for char in composed)


def _unicode_label(label: str) -> str:
    """A label as it is shown: its Punycode undone (RFC 3492); one that is none as it stands."""
    if not label.startswith("xn--") or len(label) > _LONGEST_LABEL:
        return label
    try:
        return label[4:].encode("ascii").decode("punycode")
    except UnicodeError:
        return label


def is_wildcard_name(target: Target) -> bool:
    """Whether a public name stands for an address of this machine or network that is written inside it."""
    if target.host in _LOOPBACK_NAMES or target.host.endswith(_BELOW_LOOPBACK):
        return True
    if not target.host.endswith(_WILDCARDS):
        return False
    inside = target.host.replace("-", ".")
    return any(mark in inside for mark in _INSIDE)


_LOOPBACK_NAMES: Final = ("lvh.me", "localtest.me", "vcap.me", "lacolhost.com")
_BELOW_LOOPBACK: Final = tuple(f".{name}" for name in _LOOPBACK_NAMES)
_WILDCARDS: Final = (".nip.io", ".sslip.io", ".xip.io", ".traefik.me", ".backname.io")
_INSIDE: Final = ("127.0.", "169.254", "10.0.", "192.168.", "172.16.", "7f000001", "a9fea9fe")


def poses(target: Target, url: str) -> bool:
    """Whether a public name leads back to this machine or network, but for a port where people try what they build."""
    return is_wildcard_name(target) and (len(url) > _LONGEST_WORD or _DEVELOPMENT.search(url) is None)


_DEVELOPMENT: Final = Lazy(
    r"(?i)^https?://(?:[a-z][a-z-]{0,40}\d?\.){0,4}(?:127[.-]0[.-]0[.-]1\.(?:nip\.io|sslip\.io|xip\.io|traefik\.me|backname\.io)|"
    r"lvh\.me|localtest\.me|vcap\.me|lacolhost\.com):(?:3[01]\d\d|4200|4321|500[01]|517[3-9]|80\d\d|8888)(?:[/?#]|$)"
)


def _addresses(target: Target) -> tuple[Address, ...]:
    """The address of a target, and every one of IPv4 that is written inside it."""
    address = read_address(target.address)
    return () if address is None else (address, *carried(address))


def _address(host: str, *, schemed: bool) -> tuple[str, bool]:
    """The address that a host spells, as lenient resolvers read it, and whether the spelling is odd.

    A small number alone is an address only behind a scheme, and there only 0, which is the machine itself.
    """
    if ":" not in host and not host.rpartition(".")[2][:1].isdigit():
        return "", False  # a name: the last part of every spelling of an address begins with a digit
    parts = host.split(".")
    if len(parts) == _QUAD and all(part in _OCTETS for part in parts):
        return host, False
    if ":" in host:
        address = read_address(host.partition("%")[0])
        if address is None:
            return "", False
        return str(address), not all(is_public(str(one)) for one in carried(address))
    if host.isascii() and host.strip(_SPELLING):
        return "", False
    # inet_aton: one to four parts, each decimal, octal or hexadecimal; the last fills what is left.
    if not 1 <= len(parts) <= 4 or len(host) > 64:
        return "", False
    numbers: list[int] = []
    for part in parts:
        number = _number(part)
        if number is None:
            return "", False
        numbers.append(number)
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        return "", False
    value = last
    for place, number in enumerate(leading):
        value += number << (8 * (3 - place))
    if len(parts) == 1 and value < 2**24 and not (schemed and value == 0):
        return "", False
    return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}", True


def _number(part: str) -> int | None:
    try:
        if part.startswith("0x"):
            return int(part, 16)
        if len(part) > 1 and part.startswith("0"):
            return int(part, 8)
        return int(part) if part.isascii() and part.isdigit() else None
    except ValueError:
        return None
