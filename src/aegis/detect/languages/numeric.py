"""Whole numbers that values are, and what is computed of them: bounded, whatever a program writes."""

from __future__ import annotations

import ipaddress
import operator
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from aegis.core.patterns import Lazy
from aegis.detect.languages.followed import HOLE, MAX_CHARS, MAX_ITEMS, UNKNOWN, FollowedValue

Values = Sequence[FollowedValue]
_LARGEST: Final = 1 << 63
_MOST_DIGITS: Final = 300
_NUMBER: Final = Lazy(r"^([+-]?)(?:0([xX][0-9a-fA-F]+|[oO]?[0-7]+|[bB][01]+)|(\d+))(?:[uUlL]{1,3}|[iu]\d{1,3})?$")
_BASES: Final[Mapping[str, int]] = {"x": 16, "X": 16, "b": 2, "B": 2}
_TRUTHS: Final[Mapping[str, int]] = {"true": 1, "false": 0}


def number_of(value: FollowedValue) -> int | None:
    """The whole number that a value surely is."""
    if len(value.texts) != 1 or value.items or len(value.texts[0]) > _MOST_DIGITS or not value.texts[0].isascii():
        return None
    match = _NUMBER.match(value.texts[0].replace("_", ""))
    if match is None:
        return _TRUTHS.get(value.texts[0])
    sign, written, plain = match.groups()
    if written is None:
        number = int(plain)
    elif not value.number and written.isdecimal():  # a text of digits, not a literal
        number = int(written)
    else:
        number = int(written if written.isdecimal() else written[1:], _BASES.get(written[0], 8))
    return -number if sign == "-" else number


def counted(number: int | None) -> FollowedValue:
    """A number as a value."""
    return UNKNOWN if number is None or abs(number) > _LARGEST else FollowedValue((str(number),), number=True)


def truth(met: bool | None) -> FollowedValue:
    """The value of a condition."""
    return UNKNOWN if met is None else FollowedValue(("true" if met else "false",))


def is_sign(code: int | None) -> bool:
    """Whether a number is the code of a sign that may stand alone."""
    return code is not None and 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000


def octal(value: FollowedValue) -> tuple[str, ...]:
    """A number as modes of files are written."""
    number = number_of(value) if value.number else None
    return () if number is None or number < 0 else (f"0o{number:o}",)


def is_narrow(value: FollowedValue) -> bool:
    """Whether a mode lets nobody but its owner write a file, and others do nothing with it."""
    return any(not int(mode, 8) & 0o4027 for mode in octal(value))


_OPERATIONS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "|": operator.or_, "&": operator.and_,
    "^": operator.xor, ">>": operator.rshift, "<<": operator.lshift, "//": operator.floordiv, "/": operator.floordiv,
    "%": operator.mod, "shl": operator.lshift, "shr": operator.rshift, "**": operator.pow,
}  # fmt: skip
_MOST_SHIFTED: Final = 62
_ONLY_NUMBERS: Final = frozenset({"-", "|", "&", "^", ">>", "shl", "shr", "**"})


def operated(sign: str, one: FollowedValue, other: FollowedValue) -> FollowedValue | None:
    """What an operation makes of two numbers; `None` where it is none of numbers, or they are not known."""
    operation = _OPERATIONS.get(sign)
    if operation is None or (not (one.number and other.number) and sign not in _ONLY_NUMBERS):
        return None
    left, right = number_of(one), number_of(other)
    if sign == "**" and right == 0:
        return counted(1)
    if left is None or right is None or (sign in ("/", "//", "%") and not right):
        return None
    if sign in ("<<", ">>", "shl", "shr", "**") and not 0 <= right <= _MOST_SHIFTED:
        return None
    return counted(operation(left, right))


def integer(every: Values) -> FollowedValue:
    """A number that is read of a text, in the base that is given behind it."""
    first = every[0] if every else UNKNOWN
    base = number_of(every[1]) if len(every) > 1 else None
    if base is not None and 2 <= base <= 36 and len(first.known) == 1 and not first.number:
        try:
            return FollowedValue((str(int(first.known[0][:_MOST_DIGITS], base)),), number=True)
        except ValueError:
            return UNKNOWN
    number = number_of(first)
    number = address_number(first) if number is None else number
    return first if number is None else counted(number)


def octal_read(every: Values) -> FollowedValue:
    return integer([*every[:1], FollowedValue(("8",))]) if every else UNKNOWN


def length(every: Values) -> FollowedValue:
    first = every[0] if every else UNKNOWN
    if first.items or first.members:
        return counted(len(first.items) or len(first.members))
    sure = len(first.texts) == 1 and HOLE not in first.texts[0] and not first.number
    return counted(len(first.texts[0])) if sure else UNKNOWN


def total(every: Values) -> FollowedValue:
    if any(item.items for item in each_of(every[:1])):  # `sum([["a"], ["b"]], [])`
        return FollowedValue((), tuple(one for item in each_of(every[:1]) for one in item.items)[:MAX_ITEMS])
    if len(every) > 1 and every[0].items and not every[1].items and not every[1].number:  # `list.sum("")` of Ruby
        return FollowedValue(("".join((item.texts or (HOLE,))[0] for item in every[0].items),))
    numbers = [number_of(item) for item in each_of(every)]
    return counted(sum(number for number in numbers if number is not None)) if None not in numbers else UNKNOWN


def truth_of(every: Values) -> FollowedValue:
    first = every[0] if every else FollowedValue(("false",))
    if first.items or first.members:
        return truth(True)
    sure = len(first.texts) == 1 and HOLE not in first.texts[0]
    return truth(first.texts[0] not in ("", "0", "false", "none", "null", "nil")) if sure else UNKNOWN


def range_of(every: Values, *, inclusive: bool = False) -> FollowedValue:
    bounds = [number_of(one) for one in every[:3]]
    if not bounds or None in bounds:
        return UNKNOWN
    told = [number for number in bounds if number is not None]
    begins, ends = (0, told[0]) if len(told) == 1 else (told[0], told[1])
    step = told[2] if len(told) > 2 else 1
    if not step:
        return UNKNOWN
    ends += (1 if step > 0 else -1) if inclusive else 0
    return FollowedValue((), tuple(map(counted, islice(range(begins, ends, step), MAX_ITEMS))))


def each_of(every: Values) -> Sequence[FollowedValue]:
    """The items of one list, else what is given one by one."""
    return every[0].items if len(every) == 1 and every[0].items else every


# Addresses


def address(every: Values) -> FollowedValue:
    """An address by its number or its four bytes; a text as it is."""
    number = number_of(every[0]) if every else None
    if number is not None:
        return FollowedValue((str(ipaddress.IPv4Address(number)),)) if 0 <= number < 1 << 32 else UNKNOWN
    text = every[0].known[0] if every and every[0].known else HOLE
    packed = len(text) == 4 and "." not in text and all(ord(sign) < 256 for sign in text)
    return FollowedValue((".".join(str(ord(sign)) for sign in text),)) if packed else every[0] if every else UNKNOWN


def address_number(value: FollowedValue) -> int | None:
    """The number of the address that a value surely is."""
    try:
        return int(ipaddress.IPv4Address(value.texts[0])) if len(value.texts) == 1 and not value.number else None
    except ValueError:
        return None


def moved(sign: str, one: FollowedValue, other: FollowedValue) -> FollowedValue | None:
    """The address so many behind another one, or before it; `None` where it is none, or is not known."""
    number, start = number_of(other), address_number(one)
    if sign not in ("+", "-") or number is None or start is None:
        return None
    return address([counted(start + (number if sign == "+" else -number))])


def network(value: FollowedValue) -> ipaddress.IPv4Network | None:
    """The network that a value surely is."""
    try:
        told = len(value.known) == 1 and "/" in value.known[0]
        return ipaddress.IPv4Network(value.known[0], strict=False) if told else None
    except ValueError:
        return None


def supernet(every: Values) -> FollowedValue:
    """The network that holds another, with the length of prefix that is given last."""
    prefix = number_of(every[-1]) if len(every) > 1 else None
    held = network(every[0]) if every else None
    try:
        return UNKNOWN if held is None else FollowedValue((str(held.supernet(1, prefix)),))
    except ValueError:
        return UNKNOWN


def number_text(way: str) -> Callable[[Values], FollowedValue]:
    def made(every: Values) -> FollowedValue:
        number = number_of(every[0]) if every else None
        return FollowedValue((format(number, way),)) if number is not None else UNKNOWN

    return made


def linked(every: Values) -> FollowedValue:
    """The address that a link leads to which stands on a page: the page, and the link."""
    if len(every) < 2:
        return every[0] if every else UNKNOWN
    page, link = ((one.texts or (HOLE,))[0].replace(HOLE, "VALUE") for one in every[:2])
    try:
        return FollowedValue((urllib.parse.urljoin(page, link)[:MAX_CHARS],))
    except ValueError:
        return UNKNOWN


# Encodings


def packed(every: Values) -> FollowedValue:
    """What a pattern of Perl or PHP packs: digits (`H*`), codes of signs (`C*`, `U*`, `W*`), a text (`A*`)."""
    way = every[0].known[0][:1] if every and every[0].known else ""
    rest = [item for one in every[1:] for item in (one.items or (one,))]
    if way == "H" and rest and rest[0].known:
        try:
            return FollowedValue((bytes.fromhex(rest[0].known[0]).decode("utf-8", "replace"),))
        except ValueError:
            return UNKNOWN
    numbers = [number_of(one) for one in rest]
    if way in ("C", "c", "U", "W") and numbers and all(map(is_sign, numbers)):
        return FollowedValue(("".join(chr(one or 0) for one in numbers),))
    return rest[0] if way in ("A", "a") and rest else UNKNOWN
