"""Durations, sizes and rates as people write them, read exactly or refused."""

from __future__ import annotations

from typing import Final

from aegis.guards.rate import PERIODS, ByteRate, Rate

_DURATIONS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZES: Final = {
    "": 1, "B": 1, "kB": 1_000, "KB": 1_000, "MB": 1_000_000, "KiB": 1_024, "MiB": 1_048_576,
}  # fmt: skip
_MAX_DIGITS: Final = 12  # larger numbers are typing errors, and never reach arithmetic


def seconds(value: object) -> int:
    """Whole seconds of `90`, `30s`, `5m`, `2h` or `1d`; raises `ValueError` for anything else."""
    number, unit = _split(value)
    if number is not None and (unit in _DURATIONS or (unit == "" and isinstance(value, int))):
        return number * _DURATIONS.get(unit, 1)
    raise ValueError("a duration is a whole number with a unit, as in `30s`, `5m`, `2h` or `1d`")


def size(value: object) -> int:
    """Bytes of `65536`, `64KiB`, `1MiB` or `1MB`; raises `ValueError` for anything else."""
    number, unit = _split(value)
    if number is not None and unit in _SIZES:
        return number * _SIZES[unit]
    raise ValueError("a size is a whole number of bytes or has a unit, as in `64KiB` or `1MiB`")


def rate(value: object) -> Rate | None:
    """The rate that `100/minute` spells, `None` for `unlimited`; raises `ValueError` for anything else."""
    if value == "unlimited":
        return None
    if isinstance(value, str):
        count, slash, period = value.partition("/")
        number, rest = _split(count)
        if slash and number is not None and rest == "" and period in PERIODS:
            return Rate(limit=number, seconds=PERIODS[period])
    raise ValueError("a rate is `unlimited`, or a whole number per `second`, `minute`, `hour` or `day`")


def byte_rate(value: object) -> ByteRate | None:
    """The rate that `64MiB/minute` spells, `None` for `unlimited`; raises `ValueError` for anything else."""
    if value == "unlimited":
        return None
    if isinstance(value, str):
        amount, slash, period = value.partition("/")
        number, unit = _split(amount)
        if slash and number is not None and unit in _SIZES and period in PERIODS:
            return ByteRate(limit=number * _SIZES[unit], seconds=PERIODS[period])
    raise ValueError("a rate of bytes is `unlimited`, or a size per `second`, `minute`, `hour` or `day`")


def _split(value: object) -> tuple[int | None, str]:
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None, ""
    text = str(value).strip()
    digits = len(text) - len(text.lstrip("0123456789"))
    if not 0 < digits <= _MAX_DIGITS:
        return None, ""
    return int(text[:digits]), text[digits:].strip()
