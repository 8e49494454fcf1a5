from __future__ import annotations

from typing import Any

import pytest

from aegis.core.text import mask, mask_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [("", ""), ("a", "****"), ("12345678", "****"), ("123456789", "12****89"), ("secret value", "se****ue")],
)
def test_text_shows_at_most_its_ends(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, None),
        (True, True),
        (42, "****"),
        (1.5, "****"),
        ({"card": ["4111111111111111", 7], "ok": False}, {"card": ["41****11", "****"], "ok": False}),
        ([], []),
        ({}, {}),
    ],
)
def test_values_keep_their_shape_and_lose_their_content(value: Any, shown: Any) -> None:
    assert mask_value(value) == shown
