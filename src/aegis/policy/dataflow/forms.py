"""Values in the forms in which people say them: dates, times of day, numbers in words, and the shape of identifiers.

What a call passes is compared with what a user said by these, never by what the words mean: `2031-03-04` is the fourth
of March, `21:00` is 9 pm, `3` is three, and `K-112` has the shape of `K-455`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import yaml

from aegis.core.patterns import Lazy
from aegis.core.shipped import shipped_folder

_Form = TypeVar("_Form")

MAX_FORMS: Final = 512  # dates, times, numbers and shapes of one text, each: bounds what a prompt makes us keep
MAX_CHARS: Final = 65_536  # of one text that are looked at


def tables_folder() -> Path:
    """The folder of the tables of data flow, inside the wheel or beside the source tree."""
    return shipped_folder("data/dataflow")


def read_table(name: str) -> dict[str, Any]:
    """One of these tables."""
    value: dict[str, Any] = yaml.load((tables_folder() / name).read_text(encoding="utf-8"), yaml.CSafeLoader)
    return value


ENGLISH: Final = read_table("forms.yaml")  # how people say values
_MONTHS: Final[tuple[str, ...]] = tuple(ENGLISH["months"])
_MONTH: Final = (
    r"(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
_MONTH_ALONE: Final = Lazy(rf"(?i)\b{_MONTH}\b")
_ORDINALS: Final[tuple[str, ...]] = tuple(ENGLISH["ordinals"])
_DAY: Final = r"([0-3]?[0-9](?:st|nd|rd|th)?|" + "|".join(_ORDINALS) + ")"
_DATE: Final = Lazy(
    r"(?i)\b(?:[0-9]{4}[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})\b"
    r"|([0-9]{1,2})[-/.]([0-9]{1,2})[-/.][0-9]{4}\b"
    rf"|{_MONTH} (?:the )?{_DAY}\b"
    rf"|{_DAY} (?:of )?{_MONTH}\b)"
)
_TIME: Final = Lazy(
    r"(?i)\b([0-2]?[0-9])(?::([0-5][0-9]))?(?::[0-5][0-9])? ?(a\.?m\b|p\.?m\b|o'clock)|\b([0-2]?[0-9]):([0-5][0-9])"
    r"|\b(noon|midday|midnight)\b"
)
_NUMBERED: Final[dict[str, float]] = {
    **{word: float(number) for number, word in enumerate(ENGLISH["counted"])},
    **{word: float(number) for number, word in enumerate(_ORDINALS, 1)},
    **ENGLISH["numbers"],
}
_SCALED: Final[dict[str, float]] = ENGLISH["scales"]
_NUMBER: Final = Lazy(
    r"(?i)([0-9]+(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]*\.[0-9]+|[0-9]+)"
    r"(?: ?(k|m|bn|hundred|thousand|million|billion|percent)\b| ?(%))?"
    r"|\b([a-z]{1,9})\b"
)
_SHAPED: Final = Lazy(r"[#\p{L}\p{N}][\p{L}\p{N}_./#-]*[\p{L}\p{N}]|[\p{L}\p{N}]{2}")
_RELATIVE: Final[frozenset[str]] = frozenset(ENGLISH["relative"])


class SaidDay(NamedTuple):
    """A day of the year that somebody named. Years are left out: most people do, and agents guess them."""

    month: int
    day: int

    @property
    def bounds(self) -> int:
        """The month that the day begins or ends; 0 where it does neither."""
        return self.month if self.day == 1 or self.day >= _LAST[self.month - 1] else 0


_LAST: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Forms(NamedTuple):
    """What a text names, in one form each."""

    dates: frozenset[SaidDay]
    times: frozenset[str]
    numbers: frozenset[float]
    shapes: frozenset[str]
    months: frozenset[int]  # which it names, with a day or without


@lru_cache(maxsize=512)
def forms_of(text: str) -> Forms:
    """The dates, times of day, numbers and shapes of identifiers in a text."""
    text = text[:MAX_CHARS]
    shapes = (shape for match in _SHAPED.finditer(text) if (shape := shape_of(match[0])))
    return Forms(
        dates=_first(_dates(text)),
        times=_first(_times(text)),
        numbers=_first(_numbers(text)),
        shapes=_first(shapes),
        months=_first(_months(text)),
    )


def _first(found: Iterator[_Form]) -> frozenset[_Form]:
    return frozenset(islice(found, MAX_FORMS))


def dates_of(text: str) -> frozenset[SaidDay]:
    """The days that a text names."""
    return forms_of(text).dates if any(char.isdigit() for char in text) else frozenset()


def is_relative(said: frozenset[str]) -> bool:
    """Whether words name a time by another one: what a call passes is then computed."""
    return not _RELATIVE.isdisjoint(said)


def has_digit(text: str) -> bool:
    """Whether a text has a digit of any script."""
    if text.isascii():
        return not _DIGITS.isdisjoint(text)
    return any(char.isdigit() for char in text)


def shape_of(text: str) -> str:
    """The shape of an identifier, a sign for each of its characters; empty where a text is none.

    An identifier has a digit beside a letter or a sign, or six digits and more. Times, dates and amounts are none.
    """
    if not 2 <= len(text) <= _LONGEST or " " in text or not has_digit(text):
        return ""
    if text.isdigit():
        return "9" * len(text) if len(text) >= _LEAST_DIGITS else ""
    if not any(char.isalpha() or char == "#" for char in text) or _ORDINAL.fullmatch(text):
        return ""
    return "".join(
        "9" if char.isdigit() else "A" if char.isupper() else "a" if char.isalpha() else char for char in text
    )


_LONGEST: Final = 40
_DIGITS: Final = frozenset("0123456789")
_LEAST_DIGITS: Final = 6
# Ordinals, amounts with a unit and clock times are values, and no names of things.
_ORDINAL: Final = Lazy(r"(?i)[0-9][0-9.]*(?:st|nd|rd|th|am|pm|k|m|h|d|s|gb|mb|kb|kg|g|km|cm|mm|px|usd|eur|x)")


def _dates(text: str) -> Iterator[SaidDay]:
    for match in _DATE.finditer(text):
        month, day, one, two, named, its_day, day_first, then = match.groups()
        if month:
            yield from _valid(int(month), int(day))
        elif one:
            yield from _valid(int(one), int(two))
            yield from _valid(int(two), int(one))
        else:
            month_name, number = (named, its_day) if named else (then, day_first)
            yield from _valid(_MONTHS.index(month_name[:3].lower()) + 1, _day(number))


def _months(text: str) -> Iterator[int]:
    for match in _MONTH_ALONE.finditer(text):
        if match[0] != "may":  # which is a month with a capital letter alone
            yield _MONTHS.index(match[1][:3].lower()) + 1


def _day(text: str) -> int:
    text = text.lower()
    return _ORDINALS.index(text) + 1 if text in _ORDINALS else int("".join(char for char in text if char.isdigit()))


def _valid(month: int, day: int) -> Iterator[SaidDay]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield SaidDay(month, day)


def _times(text: str) -> Iterator[str]:
    for match in _TIME.finditer(text):
        hour, minute, half, clock, minutes, named = match.groups()
        if named:
            yield "00:00" if named.lower() == "midnight" else "12:00"
        elif clock:
            yield f"{int(clock):02}:{minutes}"
        else:
            number = int(hour) % 12 + 12 if half.lower().startswith("p") else int(hour)
            yield f"{number % 24:02}:{minute or '00'}"


def _numbers(text: str) -> Iterator[float]:
    for match in _NUMBER.finditer(text):
        digits, scale, percent, word = match.groups()
        if digits:
            number = float(digits.replace(",", ""))
            yield number
            if scale or percent:
                yield round(number * _SCALED[(scale or percent).lower()], 9)
        elif word.lower() in _NUMBERED:
            yield _NUMBERED[word.lower()]
