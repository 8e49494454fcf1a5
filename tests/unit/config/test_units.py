from __future__ import annotations

import pytest

from aegis.config import fields
from aegis.policy.guards.rate import Rate


@pytest.mark.parametrize(
    ("text", "expected"),
    [(90, 90), ("30s", 30), ("5m", 300), ("2h", 7_200), ("1d", 86_400), (" 5 m ", 300), ("0s", 0)],
)
def test_durations(text: object, expected: int) -> None:
    assert fields.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "5 minutes", "1.5h", 1.5, True, None, [], "5mm", "9" * 13 + "s"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="a duration is"):
        fields.seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (7, 7),
        ("7", 7),
        ("7B", 7),
        ("2kB", 2_000),
        ("2KB", 2_000),
        ("64KiB", 65_536),
        ("1MB", 1_000_000),
        ("1MiB", 2**20),
    ],
)
def test_sizes(text: object, expected: int) -> None:
    assert fields.size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1mib", "1GiB", 1.0, False, None])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match="a size is"):
        fields.size(text)


@pytest.mark.parametrize(("text", "seconds"), [("9/second", 1), ("9/minute", 60), ("9/hour", 3_600), ("9/day", 86_400)])
def test_rates(text: str, seconds: int) -> None:
    assert fields.rate(text) == Rate(limit=9, seconds=seconds)


def test_no_rate() -> None:
    assert fields.rate("unlimited") is None


@pytest.mark.parametrize("text", ["", "9", "9/", "/minute", "9/min", "9m/minute", "-9/minute", 9, None, "9/minute/day"])
def test_what_is_no_rate(text: object) -> None:
    with pytest.raises(ValueError, match="a rate is"):
        fields.rate(text)
