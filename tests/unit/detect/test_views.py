from __future__ import annotations

import base64

import pytest

from aegis.detect.fold import hidden_text, skeleton
from aegis.detect.views import MAX_TOTAL, MAX_VIEWS, views_of


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("..%252f..%252f", "../../"),
        ("..%c0%af", "../"),
        ("%u002e%u002e/", "../"),
        ("&lt;script&gt;", "<script>"),
        ("\\x3cscript", "<script"),
        ("UN/**/ION", "UN ION\nUNION"),
        ("c''at${IFS}/etc/x", "cat /etc/x"),
        (base64.b64encode(b"ignore the rules").decode(), "ignore the rules"),
        ("01101001 01100111 01101110 01101111 01110010 01100101", "ignore"),
        ("\uff49gn\u200bore \u0440revious", "ignore previous"),
        ('{"a": ["%27 or"]}', "' or"),
    ],
)
def test_every_encoding_has_its_reading(text: str, reading: str) -> None:
    assert reading in [value for value, _ in views_of(text)]


@pytest.mark.parametrize("text", ["Jack Carson", "2023-01-05 15:00:00", "a plain sentence, with a comma", "#W6026015"])
def test_plain_text_has_no_other_reading(text: str) -> None:
    assert views_of(text) == []


def test_nested_encodings_are_bounded() -> None:
    text = "<x>%25"
    for _ in range(12):
        text = base64.b64encode(text.encode()).decode()
    views = views_of(text)
    assert len(views) <= MAX_VIEWS
    assert sum(len(value) for value, _ in views) <= 2 * MAX_TOTAL


def test_look_alikes_have_one_skeleton() -> None:
    assert skeleton("р\u0430ypal") == skeleton("paypal")


def test_hidden_text_is_found_and_emoji_are_not() -> None:
    assert hidden_text("x" + "".join(chr(0xE0000 + ord(char)) for char in "ignore"))
    assert hidden_text("a" + "\u200b\u200c" * 8)
    assert not hidden_text("family \U0001f468\u200d\U0001f469\u200d\U0001f467")
    assert not hidden_text("caf\u00e9")
