"""The kinds of values that the sections of `aegis.yaml` are made of."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from aegis.core.call import MAX_NAME_CHARS
from aegis.core.outcome import ROLES
from aegis.core.text import visible
from aegis.detect.fold import name_skeleton
from aegis.policy.guards.rate import PERIODS, ByteRate, Rate

# Durations, sizes and rates as people write them, read exactly or refused.

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


MAX_TIMEOUT: Final = 7 * 86_400  # a held call keeps arguments and a waiter: bounds how long
MAX_WALK: Final = 16 * 1_048_576  # bytes of one call that are ever walked: bounds time and memory
MAX_LEVELS: Final = 128  # canonical JSON refuses values that are nested deeper than 200 levels
MAX_HOURLY: Final = 10_000  # answers of one person that are remembered: bounds a document
MAX_TEXT: Final = 4_000  # characters of one description or reason

Listed = TypeVar("Listed", bound=Iterable[str])
Tier = Literal["low", "medium", "high", "critical"]
Mode = Literal["enforce", "observe", "off"]
DeclaredEffect = Literal["read", "write", "network", "exec", "external_send", "none"]


class Section(BaseModel):
    """Base of every section: exact types, no unknown keys, never changed after it was read.

    The text under a member is its line in the reference.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def written(how: str) -> Any:
    """Says in the reference how a value is written."""
    return Field(json_schema_extra={"written": how})


def _name(value: str) -> str:
    if not value.strip() or len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise ValueError(f"a name has 1 to {MAX_NAME_CHARS} visible characters")
    return value


def unlike(names: Listed) -> Listed:
    """A list or table of names of which no two look alike: they would be one party under two names."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(name_skeleton(name), name)
        if other != name:
            raise ValueError(f"`{visible(name)}` looks like `{visible(other)}`")
    return names


def _approver(value: str) -> str:
    kind, colon, name = value.partition(":")
    if not colon or kind not in ("role", "group", "user") or not name.strip():
        raise ValueError("an approver is `role:NAME`, `group:NAME` or `user:NAME`")
    if not name.isprintable() or name != name.strip():
        raise ValueError(f"`{visible(value)}` holds characters that nobody sees")
    if kind == "role" and name not in ROLES:
        raise ValueError(f"there is no role `{name}`; roles are {', '.join(f'`{role}`' for role in ROLES)}")
    if kind == "role" and name in ("agent", "tool"):
        raise ValueError(f"the role `{name}` cannot approve")
    return value


def _timeout(value: object) -> int:
    number = seconds(value)
    if not 1 <= number <= MAX_TIMEOUT:
        raise ValueError("a timeout is between one second and seven days")
    return number


def _grant(value: object) -> int:
    return 0 if value == "off" else _timeout(value)


def _grant_text(value: int) -> object:
    return value or "off"


def _hourly(value: object) -> int | None:
    if value == "unlimited":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_HOURLY:
        raise ValueError(f"the limit is `unlimited`, or a whole number from 1 to {MAX_HOURLY}")
    return value


def _hourly_text(value: int | None) -> object:
    return "unlimited" if value is None else value


def _bytes(value: object) -> int:
    number = size(value)
    if not 1 <= number <= MAX_WALK:
        raise ValueError("`max_bytes` is between 1 and 16MiB")
    return number


def _rate_text(value: Rate | None) -> str:
    return "unlimited" if value is None else f"{value.limit} in {value.seconds} s"


def _byte_rate_text(value: ByteRate | None) -> str:
    return "unlimited" if value is None else f"{value.limit} bytes in {value.seconds} s"


def _words(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _moment(value: object) -> int:
    """Microseconds since the epoch at which an ISO date (or date and time with offset) begins, UTC."""
    if not isinstance(value, str):
        raise ValueError("a date is written `2027-01-31`")  # noqa: TRY004 - a wrong value of a file
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise ValueError("a date is written `2027-01-31`") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1_000_000)


Name = Annotated[str, AfterValidator(_name), written("text")]
Description = Annotated[str, Field(max_length=MAX_TEXT)]
Names = Annotated[list[Name], BeforeValidator(_words), Field(min_length=1), written("one or a list of selectors")]
People = Annotated[Names, AfterValidator(unlike)]
Approver = Annotated[str, AfterValidator(_approver), written("`role:NAME`, `group:NAME` or `user:NAME`")]
Timeout = Annotated[int, BeforeValidator(_timeout), written("a duration: `90s`, `5m`, `2h`, `1d`")]
GrantTime = Annotated[
    int, BeforeValidator(_grant), PlainSerializer(_grant_text), written("a duration: `30m`, `1h`; or `off`")
]
HourlyLimit = Annotated[
    int | None, BeforeValidator(_hourly), PlainSerializer(_hourly_text), written("a number, or `unlimited`")
]
Size = Annotated[int, BeforeValidator(_bytes), written("a size: `64KiB`, `1MiB`")]
RateField = Annotated[
    Rate | None, BeforeValidator(rate), PlainSerializer(_rate_text), written("`100/minute`, or `unlimited`")
]
ByteRateField = Annotated[
    ByteRate | None,
    BeforeValidator(byte_rate),
    PlainSerializer(_byte_rate_text),
    written("`64MiB/minute`, or `unlimited`"),
]
JsonSchema = Annotated[dict[str, Any], written("a JSON Schema")]
Moment = Annotated[int, BeforeValidator(_moment), written("a date: `2027-01-31`")]
