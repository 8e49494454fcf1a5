"""Which addresses are public, and which lead somewhere else."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegis.core.addresses import is_loopback, is_public

# The blocks of the IANA special-purpose registries that are not for everybody, multicast, and the deprecated forms.
SPECIAL = (
    "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
    "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    "::/128", "::1/128", "::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "100::/64", "100:0:0:1::/64",
    "2001::/23", "2001::/32", "2001:2::/48", "2001:10::/28", "2001:20::/28", "2001:db8::/32", "2002::/16",
    "2620:4f:8000::/48", "3fff::/20", "5f00::/16", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)  # fmt: skip
_SPECIAL_4 = tuple(ipaddress.IPv4Network(block) for block in SPECIAL if ":" not in block)


def _inside(block: str) -> st.SearchStrategy[str]:
    network = ipaddress.ip_network(block)
    first, last = int(network.network_address), int(network.broadcast_address)
    made = ipaddress.IPv4Address if network.version == 4 else ipaddress.IPv6Address
    return st.integers(first, last).map(lambda number: str(made(number)))


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::6810:85e5", "2a00:1450:4001::8a", "64:ff9b::5db8:d822"]
)
def test_a_global_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.claim("IDN-10")
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::808:808", "2002:7f00:1::",
        "2002:808:808::", "2001:0:808:808::", "192.88.99.1", "100::1", "2606:4700::5efe:7f00:1", "2130706433",
        "localhost", "",
    ],
)  # fmt: skip
def test_an_address_that_is_or_carries_a_special_one_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.claim("IDN-10")
@settings(deadline=None)
@given(st.sampled_from(SPECIAL).flatmap(_inside))
def test_no_address_of_a_special_block_is_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.claim("IDN-10")
@settings(deadline=None)
@given(st.sampled_from([block for block in SPECIAL if ":" not in block]).flatmap(_inside))
def test_a_translated_address_is_what_it_leads_to(address: str) -> None:
    assert not is_public(f"64:ff9b::{address}")


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))
def test_every_other_address_of_ipv4_is_public(address: ipaddress.IPv4Address) -> None:
    assert is_public(str(address)) is not any(address in block for block in _SPECIAL_4)


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", False),
        ("::127.0.0.1", False),
        ("0.0.0.0", False),
        ("localhost.example", False),
        ("127.1", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, here: bool) -> None:
    assert is_loopback(host) is here
