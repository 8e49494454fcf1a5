from __future__ import annotations

from typing import Any

import pytest

from aegis.policy.guards.base import holds_at_most


@pytest.mark.parametrize(
    ("value", "count"), [("x", 1), ([], 1), ({}, 1), ([1, 2], 3), ({"a": [1, {"b": 2}]}, 5), ([[[[]]]], 4)]
)
def test_every_value_and_container_counts_once(value: Any, count: int) -> None:
    assert holds_at_most(value, count)
    assert not holds_at_most(value, count - 1)
