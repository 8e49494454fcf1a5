from __future__ import annotations

import pytest

from aegis.detect.hosts import is_local, is_look_alike, is_metadata, read_target


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/x", "http://2852039166/", "http://0xa9.0xfe.0xa9.0xfe/",
        "http://0251.0376.0251.0376", "http://[::ffff:169.254.169.254]/", "http://[::169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b:1::a9fe:a9fe]/", "http://[64:ff9b:1:a9fe:a9:fe00::]/",
        "http://[2002:a9fe:a9fe::1]/", "http://[2001:0:808:808::5601:5601]/", "http://[fe80::5efe:a9fe:a9fe]/",
        "http://[fd00:ec2:0::254]/", "http://[fd00:ec2::254%25eth0]/", "http://user@metadata.google.internal./",
    ],
)  # fmt: skip
def test_the_metadata_service_is_known_in_every_spelling(url: str) -> None:
    target = read_target(url)
    assert target is not None
    assert is_metadata(target)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.1/", "http://2130706433", "http://0x7f000001/", "http://[::1]/", "http://[::ffff:127.0.0.1]/",
        "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/", "http://[fe80::1%25eth0]/",
        "http://localhost:1", "http://0/", "http://0:80/x",
    ],
)  # fmt: skip
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


@pytest.mark.claim("IDN-10")
@pytest.mark.parametrize(
    ("url", "odd"),
    [
        ("http://[::ffff:10.0.0.1]/", True),
        ("http://[2002:c0a8:1::]/", True),
        ("http://[::ffff:8.8.8.8]/", False),
        ("http://[64:ff9b::808:808]/", False),
        ("http://[2606:4700::1111]/", False),
        ("http://[::1]/", False),
    ],
)
def test_an_inner_address_that_is_not_public_is_a_disguise(url: str, odd: bool) -> None:
    target = read_target(url)
    assert target is not None
    assert target.odd_spelling is odd


@pytest.mark.parametrize(
    ("url", "alike"),
    [
        ("https://p\u0430ypal.com/x", True),  # one Cyrillic letter
        ("https://xn--pypal-4ve.com/", True),  # the same in Punycode
        ("https://www.\u0430\u0440\u0440\u04cf\u0435.com", True),  # all of it Cyrillic
        ("https://m\u00fcnchen.de", False),
        ("https://xn--mnchen-3ya.de/", False),
        ("https://\u043f\u043e\u0447\u0442\u0430.\u0440\u0444", False),  # a word of its own script
        ("https://\u4f8b\u3048.jp", False),
        ("https://xn--zzz-\u00e9.com", False),  # no Punycode
        ("https://xn--99999999999.com", False),
        ("https://example.com/\u0430", False),
    ],
)
def test_a_host_of_other_letters_that_look_like_ascii_is_told_from_a_word(url: str, alike: bool) -> None:
    target = read_target(url)
    assert target is not None
    assert is_look_alike(target) is alike
