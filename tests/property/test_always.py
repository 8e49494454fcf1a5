"""The rule that answers propose covers every call that was approved, and none of another shape."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aegis.approvals.always import schema_of, shape_of
from aegis.policy.guards.schema import compile_schema

WORDS = (
    "a",
    "web1",
    "web22",
    "x.txt",
    "y.txt",
    "docs/a.txt",
    "docs/b.md",
    "..",
    "-f",
    "/",
    ";",
    "a@b.example",
    "a\n",
    "",
)
VALUES = st.one_of(
    st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join),
    st.text(max_size=8),
    st.integers(-5, 5),
    st.booleans(),
    st.none(),
    st.lists(st.sampled_from(WORDS), max_size=3),
)
NAMES = ("command", "path", "to", "body", "order_id", "sql", "amount", "url")
TOOLS = st.sampled_from(("bash", "send_email", "tool"))


@given(tool=TOOLS, name=st.sampled_from(NAMES), values=st.lists(VALUES, min_size=2, max_size=12))
def test_what_was_approved_is_covered_and_what_is_of_another_shape_is_not(
    tool: str, name: str, values: list[Any]
) -> None:
    shape = shape_of(tool, name, values[0])
    alike = [{name: value} for value in values if shape_of(tool, name, value) == shape]
    rule = compile_schema(schema_of(alike, {name: shape}), known_formats_only=True)
    assert all(rule.is_valid(one) for one in alike)
    assert not any(rule.is_valid({name: value}) for value in values if shape_of(tool, name, value) != shape)
    assert not rule.is_valid({**alike[0], "more": 1})
    assert not rule.is_valid({})
