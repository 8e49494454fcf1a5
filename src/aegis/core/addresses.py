"""What numeric addresses are: which are public, which lead to this machine, which carry another one inside (CWE-918).

The blocks are those of the IANA special-purpose registries (RFC 6890), written out here and not taken from the
interpreter, whose table differs from version to version.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# https://www.iana.org/assignments/iana-ipv4-special-registry, and multicast (RFC 5771).
_SPECIAL_4: Final = tuple(
    ipaddress.IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network (RFC 791)
        "10.0.0.0/8",  # private use (RFC 1918)
        "100.64.0.0/10",  # shared by carriers (RFC 6598)
        "127.0.0.0/8",  # loopback (RFC 1122)
        "169.254.0.0/16",  # link-local (RFC 3927)
        "172.16.0.0/12",  # private use (RFC 1918)
        "192.0.0.0/24",  # protocol assignments (RFC 6890)
        "192.0.2.0/24",  # documentation (RFC 5737)
        "192.31.196.0/24",  # AS112 (RFC 7535): answered by whoever is nearest
        "192.52.193.0/24",  # multicast tunnels (RFC 7450)
        "192.88.99.0/24",  # relays of 6to4 (RFC 7526)
        "192.168.0.0/16",  # private use (RFC 1918)
        "192.175.48.0/24",  # AS112 (RFC 7534)
        "198.18.0.0/15",  # benchmarking (RFC 2544)
        "198.51.100.0/24",  # documentation (RFC 5737)
        "203.0.113.0/24",  # documentation (RFC 5737)
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast (RFC 1112, RFC 919)
    )
)
# Outside of it nothing is allocated for hosts but the prefix of translators: loopback, unspecified, IPv4-compatible and
# IPv4-mapped forms, `64:ff9b:1::/48`, discard `100::/64`, SRv6 `5f00::/16`, unique local `fc00::/7`, link-local
# `fe80::/10`, site-local `fec0::/10` and multicast all are.
_GLOBAL_6: Final = ipaddress.IPv6Network("2000::/3")
# https://www.iana.org/assignments/iana-ipv6-special-registry, as far as it is part of `2000::/3`.
_SPECIAL_6: Final = tuple(
    ipaddress.IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments (RFC 2928): Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation (RFC 3849)
        "2002::/16",  # 6to4 (RFC 3056)
        "2620:4f:8000::/48",  # AS112 (RFC 7534)
        "3fff::/20",  # documentation (RFC 9637)
    )
)
# The well-known prefix of translators: what it leads to is the IPv4 address in its last 32 bits (RFC 6052).
_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Blocks that carry an IPv4 address, and how far from the right its 32 bits end.
_CARRIERS: Final = tuple(
    (ipaddress.IPv6Network(block), shift)
    for block, shift in (
        ("::/96", 0),  # IPv4-compatible (RFC 4291, 2.5.5.1)
        ("::ffff:0:0/96", 0),  # IPv4-mapped (RFC 4291, 2.5.5.2)
        ("::ffff:0:0:0/96", 0),  # IPv4-translated (RFC 2765)
        ("64:ff9b::/96", 0),  # RFC 6052
        ("64:ff9b:1::/96", 0),  # local translators (RFC 8215), as a prefix of 96 bits; those of other lengths below
        ("2002::/16", 80),  # 6to4 (RFC 3056)
        ("2001::/32", 64),  # Teredo: its server (RFC 4380)
    )
)
_LOCAL_TRANSLATED: Final = ipaddress.IPv6Network("64:ff9b:1::/48")
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_ISATAP: Final = frozenset({0x5EFE, 0x2005EFE})  # what stands before the address in an interface's half (RFC 5214)
_LOW_32: Final = 0xFFFF_FFFF
_FEW: Final = 0x1_0000  # `::` to `::ffff` are names of their own (`::1`), not IPv4 addresses


def read_address(text: str) -> Address | None:
    """The address that `text` spells in a usual form; `None` for anything else, one with a zone included."""
    try:
        return ipaddress.ip_address(text) if "%" not in text else None
    except ValueError:
        return None


def is_public(text: str) -> bool:
    """Whether this is a numeric address that is meant to be reached over the Internet, and leads nowhere else."""
    address = read_address(text)
    if isinstance(address, ipaddress.IPv6Address):
        if address in _TRANSLATED:
            return not _is_special(carried(address))
        return address in _GLOBAL_6 and not _is_special((address, *carried(address)))
    return address is not None and not _is_special((address,))


def is_loopback(text: str) -> bool:
    """Whether only this machine can reach `text`; a name other than `localhost` (RFC 6761, 6.3) is never taken for it.

    An address that carries one of IPv4 is not: what it leads to is another stack's choice.
    """
    if text == "localhost":
        return True
    address = read_address(text)
    return address is not None and address.is_loopback and not carries(address)


def carried(address: Address) -> tuple[ipaddress.IPv4Address, ...]:
    """Every IPv4 address that is written inside an IPv6 one, for a translator, a tunnel or a stack to connect to."""
    if isinstance(address, ipaddress.IPv4Address) or int(address) < _FEW:
        return ()
    number = int(address)
    found = [number >> shift & _LOW_32 for block, shift in _CARRIERS if address in block]
    if address in _LOCAL_TRANSLATED:  # RFC 6052, 2.2: behind 48, 56 or 64 bits, with bits 64 to 71 left out
        found.extend(_around_bit_64(number, prefix) for prefix in (48, 56, 64))
    if address in _TEREDO:
        found.append(number & _LOW_32 ^ _LOW_32)  # the client, inverted
    if number >> 32 & _LOW_32 in _ISATAP:
        found.append(number & _LOW_32)
    return tuple(ipaddress.IPv4Address(one) for one in found)


def carries(address: Address) -> bool:
    """Whether an IPv4 address is written inside of this one."""
    return bool(carried(address))


def _around_bit_64(number: int, prefix: int) -> int:
    before = 64 - prefix
    high = number >> 64 & ((1 << before) - 1)
    low = number >> (56 - (32 - before)) & ((1 << (32 - before)) - 1)
    return high << (32 - before) | low


def _is_special(addresses: Iterable[Address]) -> bool:
    return any(
        address in block
        for address in addresses
        for block in (_SPECIAL_4 if isinstance(address, ipaddress.IPv4Address) else _SPECIAL_6)
    )
