from __future__ import annotations

import pytest

from aegis.facts.hosts import is_local, is_metadata, read_target


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/x",
        "http://2852039166/",
        "http://0xa9.0xfe.0xa9.0xfe/",
        "http://0251.0376.0251.0376",
        "http://[::ffff:169.254.169.254]/",
        "http://user@metadata.google.internal./",
    ],
)
def test_the_metadata_service_is_known_in_every_spelling(url: str) -> None:
    target = read_target(url)
    assert target is not None
    assert is_metadata(target)


@pytest.mark.parametrize(
    "url", ["http://127.1/", "http://2130706433", "http://0x7f000001/", "http://[::1]/", "http://localhost:1"]
)
def test_the_machine_itself_is_known_in_every_spelling(url: str) -> None:
    target = read_target(url)
    assert target is not None
    assert is_local(target)


@pytest.mark.parametrize("url", ["https://example.com/127.0.0.1", "http://192.168.1.4/", "https://10.example.org"])
def test_other_hosts_are_neither(url: str) -> None:
    target = read_target(url)
    assert target is not None
    assert not is_local(target)
    assert not is_metadata(target)
