"""Values whose kind their name tells, and what stands in their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.detect.slots import _NAMES, misfit, slot_type


@pytest.mark.claim("DET-91")
@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [
        ("port", "8080", ""),
        ("port", "80;id", "syntax"),
        ("limit", "ten", "odd"),
        ("hostname", "db-1.internal:5432", ""),
        ("hostname", "a.example`id`", "syntax"),
        ("order_id", "INV-2024/7 (copy)", ""),
        ("order_id", "7' or '1'='1", "syntax"),
        ("user_id", "auth0|91", ""),
        ("user_id", "auth0|91;id", "syntax"),
        ("startDate", "next Friday, 9:00", ""),
        ("startDate", "2024-01-01{{7*7}}", "syntax"),
        ("email", "Conan O'Brien <conan@example.com>, eve@example.com", ""),
        ("email", "a@b.example;id", "syntax"),
        ("country", "Côte d'Ivoire", ""),
        ("phone", "+49 (30) 12-34", ""),
        ("phone", "1|id", "syntax"),
        ("timezone", "America/New_York", ""),
    ],
)
def test_a_value_is_told_from_what_its_name_says(argument: str, value: str, said: str) -> None:
    kind = slot_type(argument)
    assert kind is not None
    assert misfit(kind, value) == said


@pytest.mark.claim("DET-91")
@pytest.mark.parametrize("argument", ["text", "query", "message", "name", "title", "value", "number", "path"])
def test_a_name_that_tells_no_kind_has_no_slot(argument: str) -> None:
    assert slot_type(argument) is None


@given(st.sampled_from(sorted(_NAMES)), st.text(max_size=200))
def test_any_text_is_answered(kind: str, value: str) -> None:
    assert misfit(kind, value) in ("", "odd", "syntax")  # type: ignore[arg-type]
