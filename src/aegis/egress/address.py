"""Which addresses are public: the guard against requests that are talked into our own network (CWE-918)."""

from __future__ import annotations

import ipaddress

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""RFC 6052: the last 32 bits are an IPv4 address that a translator will connect to."""


def is_public(text: str) -> bool:
    """Whether this numeric address is globally reachable, in every form that carries another address inside."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if "%" in text or address.is_multicast:
        return False
    return all(one.is_global and not one.is_multicast for one in (address, *_inner(address)))


def _inner(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return []
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64:
        carried.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [one for one in carried if one is not None]
