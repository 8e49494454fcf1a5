"""Which addresses count as public."""

from __future__ import annotations

import pytest

from aegis.egress.address import is_public


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::6810:85e5", "8.8.8.8"])
def test_a_global_address_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.3.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "ff02::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2130706433",
        "localhost",
        "",
    ],
)
def test_an_address_that_is_or_carries_a_private_one_is_not(address: str) -> None:
    assert not is_public(address)
