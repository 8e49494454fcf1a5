"""A path is what it leads to, however it is written."""

from __future__ import annotations

import pytest

from aegis.detect.paths import KNOWN_SECRETS, fits, is_secret_file, is_system_secret, plain_path, respelled, spread


@pytest.mark.parametrize("name", KNOWN_SECRETS)
def test_every_known_secret_is_one(name: str) -> None:
    assert is_secret_file(name)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/./shadow", "/etc//shadow", "//etc/shadow", "/etc/../etc/shadow", "/etc/x/../shadow",
        "/proc/self/root/etc/shadow", "/proc/1/root/proc/self/root/etc/shadow", "~root/../etc/shadow", "/etc/sh*dow",
        "/etc/shado?", "/e[t]c/shadow", "/etc/[[:alpha:]]hadow", "/etc/[!x]hadow", "/etc/@(shadow)",
        "/etc/**/shadow", "/???/shadow", "/etc/{shadow,passwd}", "/etc/s{a..h}adow", "file:///etc/shadow",
        "file://localhost/etc/shadow", "file:/etc/shadow",
    ],
)  # fmt: skip
def test_the_passwords_of_a_system_are_known_in_every_spelling(path: str) -> None:
    assert is_secret_file(path)
    assert is_system_secret(path)


@pytest.mark.parametrize(
    "path",
    [
        "~/.ss?/id_rsa",
        "/home/*/.ssh/id_*",
        "~/.a{w,x}s/credentials",
        "~/x/../.netrc",
        "C:\\Windows\\.\\System32\\config\\SAM",
    ],
)
def test_so_are_files_of_secrets_below_a_home(path: str) -> None:
    assert is_secret_file(path)


@pytest.mark.parametrize(
    "path",
    [
        "/etc/*",
        "/etc/*release",
        "/etc/*.conf",
        "src/**/*.py",
        "*",
        "~/*",
        "what?",
        "a//b",
        "./",
        "..",
        "https://a.example//b/../etc/shadow.html",
        "src/{a,b}/c.py",
        "/usr/share/*",
        "/proc/cpuinfo",
        "/home/*/.ssh/id_*.pub",
        "x" * 5_000 + "/../etc/shadow",
        "{" * 4_000,
        "{a,b}" * 800,
        "/" + "*a" * 2_000,
    ],
)
def test_daily_paths_and_patterns_are_none(path: str) -> None:
    assert not is_secret_file(path)
    assert not is_system_secret(path)


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/a/./b//c/", "/a/b/c/"),
        ("/..", "/"),
        ("//", "/"),
        ("/usr/./", "/usr/"),
        ("./a", "./a"),
        (".", "."),
        ("./.", "."),
        ("../x", "../x"),
        ("foo/..", "."),
        ("$HOME/../x", "$HOME/../x"),
        ("~/..", "~/.."),
        ("~/a/..", "~"),
        ("~root", "/root"),
        ("/proc/self/root", "/"),
        ("/proc/self/environ", "/proc/self/environ"),
        ("https://a//b/../c", "https://a//b/../c"),
    ],
)
def test_a_path_has_one_plain_spelling(path: str, plain: str) -> None:
    assert plain_path(path) == plain
    assert plain_path(plain) == plain


def test_words_with_braces_are_spread_as_a_shell_does() -> None:
    assert spread("/a/{b,c{d,e}}/f") == ["/a/b/f", "/a/cd/f", "/a/ce/f"]
    assert spread("{1..3}{a..b}") == ["1a", "1b", "2a", "2b", "3a", "3b"]
    assert spread("{c..a}") == ["c", "b", "a"]
    assert spread("{a}") == ["{a}"]
    assert spread("${a,b}") == ["${a,b}"]
    assert len(spread("{1..9999}")) <= 128
    assert respelled("/etc/hosts") == []


@pytest.mark.parametrize(
    ("pattern", "name", "does"),
    [
        ("*", "a", True),
        ("*", ".a", False),
        (".*", ".a", True),
        ("a*b*c", "axxbyyc", True),
        ("a?c", "abc", True),
        ("a*", "b", False),
        ("", "a", False),
        ("*a*", "bab", True),
    ],
)
def test_a_segment_matches_as_a_shell_matches(pattern: str, name: str, does: bool) -> None:
    assert fits(pattern, name) is does
