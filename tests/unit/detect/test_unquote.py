"""Shell words are joined as the shell joins them, however many stand in a text."""

from __future__ import annotations

import pytest

from aegis.detect.shell.unquote import expanded_words, unquote_shell


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("cat$IFS/etc/passwd", "cat /etc/passwd"),
        ("cat$IFS$9/etc/passwd", "cat /etc/passwd"),
        ("cat${IFS}/etc/passwd", "cat /etc/passwd"),
        ("cat${IFS%??}/etc/passwd", "cat /etc/passwd"),
        ("cat${IFS" + "x" * 21 + "}/x''y", "cat${IFS" + "x" * 21 + "}/xy"),
        ("${IFS${IFS}a", " a"),
        ("{cat,/etc/passwd}", "cat /etc/passwd"),
        ("{cat,-n,/etc/passwd};{id,x y}", "cat -n /etc/passwd;{id,x y}"),
        ("{,a}{a,}{a", "{,a}{a,}{a"),
        ("w$@ho$()a``mi", "whoami"),
        ("c'a't \\/x", "cat /x"),
    ],
)
def test_quotes_blanks_and_braces_are_undone(text: str, joined: str) -> None:
    assert (unquote_shell(text) or text) == joined


def test_words_are_expanded_with_their_quotes_kept() -> None:
    assert expanded_words("{echo,'a b'};cat${IFS}'x'") == "{echo,'a b'};cat 'x'"
    assert expanded_words("; {cat,/x}") == "; cat /x"
