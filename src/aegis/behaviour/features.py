"""What a call consists of for whoever learns from it: its values, each in contexts from narrow to wide. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from aegis.core.times import MICROS

SLOTS: Final = 640  # values and contexts that are known of one agent
WAYS: Final = 4
GROUPS: Final = SLOTS // WAYS

# The kinds of values, in the order of their counters.
(
    TOOL, ORDER, RATE, HOUR, SIZE, EFFECTS, NUMBER, KEY, CLASS, WORD, BEGINS, HOST, RECIPIENT, PATH,
) = range(14)  # fmt: skip
KINDS: Final = 14
MAX_STRINGS: Final = 24  # strings of one call that are looked at
MAX_CHARS: Final = 512  # of one string
MAX_KEPT: Final = 96  # characters of a string whose values are kept for the next call that has it
MAX_WORD: Final = 24  # characters of a string that counts by itself
MAX_VALUES: Final = 40  # values of one call: bounds what a call costs
_HOUR_US: Final = 3_600 * MICROS
_MOST_PROBED: Final = MAX_VALUES * 10  # bytes
_NESTED: Final = frozenset({dict, list})


SAID: Final[Mapping[int, str]] = {
    TOOL: "first call of",
    ORDER: "a tool that never followed the one before",
    RATE: "never so quick before:",
    HOUR: "never at",
    KEY: "an argument that it never gave:",
    CLASS: "another kind of value than usual:",
    SIZE: "never so large before:",
    EFFECTS: "never did this before:",
    NUMBER: "never such a number before:",
    WORD: "never said before:",
    BEGINS: "never began like this before:",
    HOST: "first time to",
    RECIPIENT: "first time to",
    PATH: "first time below",
}


class CallValue(Struct, frozen=True, gc=False):
    """One value of a call in its context; `near` are values that count as the same where they are known.

    `wider` holds it in wider contexts, each with what counts as the same there: asked about where it is new in its own.
    `further` are values by their distance, for what is new everywhere.
    """

    kind: int
    context: int
    value: int
    shown: str
    near: tuple[int, ...] = ()
    wider: tuple[tuple[int, ...], ...] = ()
    further: tuple[int, ...] = ()


_PROBE: Final = struct.Struct("<5H")
probes_in: Final = _PROBE.iter_unpack


class ValueGroup(Struct, frozen=True, gc=False):
    """Values that come together, made once and kept.

    `probe` says where a model looks for each of them: its tag and the first of its places, those of its context, and
    its kind. Most calls bring nothing new, and the values themselves are scattered over memory: they are left alone.
    """

    values: tuple[CallValue, ...]
    probe: bytes


def _grouped(*values: CallValue) -> ValueGroup:
    return ValueGroup(
        values,
        b"".join(
            [
                _PROBE.pack(
                    one.value >> 16, one.value % GROUPS * WAYS, one.context >> 16, one.context % GROUPS * WAYS, one.kind
                )
                for one in values
            ]
        ),
    )


class LearnedCall(Struct, frozen=True, gc=False):
    """One call as it is learned: when (microseconds), its tool, its values, and where they are looked for."""

    time: int
    tool: int
    groups: Sequence[ValueGroup]
    probe: bytes

    @property
    def values(self) -> list[CallValue]:
        """The values, of which there are never more than `MAX_VALUES`."""
        return [one for group in self.groups for one in group.values][:MAX_VALUES]


@lru_cache(maxsize=65_536)
def _hash(*parts: str | int) -> int:
    """32 bits, of which the upper half is never 0: that is an empty place."""
    text = "\0".join(map(str, parts)).encode("utf-8", "surrogatepass")
    found = int.from_bytes(blake2b(text, digest_size=4, person=b"aegis.usual").digest())
    return found if found >> 16 else found | 1 << 16


def called_of(
    *, time: int, server: str | None, tool: str, arguments: Mapping[str, Any], size: int, effects: Iterable[str]
) -> LearnedCall:
    """One call as it is learned, from what is on record of it."""
    name = f"{server}/{tool}" if server else tool
    frame = _frame(name, time // _HOUR_US % 24, size.bit_length(), frozenset(effects))
    groups, probe, strings = [frame], frame.probe, 0
    is_flat = _NESTED.isdisjoint(map(type, arguments.values()))
    for key, item in arguments.items() if is_flat else _leaves(arguments):
        if isinstance(item, str):
            strings += 1
            if strings > MAX_STRINGS:
                break
            group = (_of_string if len(item) <= MAX_KEPT else _of_string.__wrapped__)(name, key, item)
        elif isinstance(item, int | float) and not isinstance(item, bool):
            group = _of_number(name, key, int(min(abs(item), 2**60)).bit_length())
        else:
            group = _of_switch(name, key)
        groups.append(group)
        probe += group.probe
    return LearnedCall(time, frame.values[0].value, groups, probe[:_MOST_PROBED])


def _leaves(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Numbers and strings, two levels deep; items of a list count as their list."""
    found: list[tuple[str, Any]] = []
    for key, item in value.items():
        if isinstance(item, dict):
            found += [(inner, leaf) for inner, leaf in item.items() if type(leaf) not in _NESTED]
        elif isinstance(item, list):
            found += [(key, leaf) for leaf in item[:MAX_STRINGS] if type(leaf) not in _NESTED]
        else:
            found.append((key, item))
    return found


def class_of(item: object) -> str:
    """What kind of value an argument holds, in words."""
    if not isinstance(item, str):
        return "a number" if isinstance(item, int | float) and not isinstance(item, bool) else "a switch"
    if " " in item or "\n" in item or len(item) > MAX_CHARS:
        return "words"
    if "://" in item:
        return "an address"
    if "@" in item:
        return "a recipient" if _is_recipient(item) else "words"
    if item.startswith(("/", "~/", "./", "../")):
        return "a path"
    return "words"


# Values are made once and kept: most calls are made of values that were there before.

_kept = lru_cache(maxsize=16_384)


@_kept
def _frame(name: str, hour: int, size: int, effects: frozenset[str]) -> ValueGroup:
    """The values of a call that its arguments do not make."""
    return _grouped(
        CallValue(TOOL, _hash("c.tool"), _hash("tool", name), f"`{name}`"),
        _hour(hour),
        _magnitude(SIZE, name, "bytes", size),
        _effects(name, tuple(sorted(effects))),
    )


@_kept
def _of_string(name: str, key: str, text: str) -> ValueGroup:
    """The values of one string: what kind of value it is, and what it names."""
    return _grouped(*_argument(name, key, class_of(text)), *_named_in(name, key, text[:MAX_CHARS]))


@_kept
def _of_number(name: str, key: str, step: int) -> ValueGroup:
    """The values of one number, by its order of magnitude."""
    return _grouped(*_argument(name, key, class_of(0)), _magnitude(NUMBER, name, key, step))


@_kept
def _of_switch(name: str, key: str) -> ValueGroup:
    """The values of what is neither text nor number."""
    return _grouped(*_argument(name, key, class_of(None)))


def _named_in(name: str, key: str, text: str) -> Sequence[CallValue]:
    """The hosts, recipients and paths that a string names; a short word counts by itself."""
    at = text.find("://")
    if at >= 0:
        begins = text.rfind(" ", 0, at) + 1
        host = _host(text[begins:].split(" ", 1)[0])
        return (_named(HOST, name, host, host),) if host else ()
    if "@" in text and _is_recipient(text):
        return (_named(RECIPIENT, name, text.lower(), text.rpartition("@")[2].lower()),)
    if "/" in text and " " not in text:
        parts = text.split("/", 3)
        top = "/".join(parts[:3]) if text.startswith("/") else parts[0]
        return (_named(PATH, name, top, "/".join(parts[:2]) if text.startswith("/") else parts[0]),)
    if " " in text:
        first = text.lstrip().split(None, 1)[0] if text.strip() else ""
        return (_word(BEGINS, name, key, first),) if len(first) <= MAX_WORD else ()
    return (_word(WORD, name, key, text),) if len(text) <= MAX_WORD else ()


def _is_recipient(text: str) -> bool:
    """Whether a text is one address of somebody."""
    name, _, domain = text.rpartition("@")
    return "." in domain and (name + domain).translate(_IN_ADDRESSES).isalnum()


_IN_ADDRESSES: Final = str.maketrans("", "", ".+-_")


def _host(text: str) -> str:
    try:
        return (urlsplit(text).hostname or "").lower()
    except ValueError:
        return ""


@lru_cache(maxsize=24)
def _hour(hour: int) -> CallValue:
    near = (_hash("hour", (hour - 1) % 24), _hash("hour", (hour + 1) % 24))
    further = tuple(_hash("hour", (hour + sign * away) % 24) for away in range(2, 8) for sign in (-1, 1))
    return CallValue(HOUR, _hash("c.hour"), _hash("hour", hour), f"{hour} h UTC", near, (), further)


@_kept
def _argument(name: str, key: str, of_class: str) -> tuple[CallValue, CallValue]:
    """What kind of value an argument has, and that it is given."""
    of = ((_hash("class", key, of_class),), (_hash("class", of_class),))
    return (
        CallValue(
            CLASS, _hash("c.class", name, key), _hash("class", name, key, of_class),
            f"`{key}` of `{name}` is {of_class}", (), of,
        ),
        CallValue(
            KEY, _hash("c.key", name), _hash("key", name, key), f"`{key}` to `{name}`", (), ((_hash("key", key),),)
        ),
    )  # fmt: skip


@_kept
def _effects(name: str, effects: tuple[str, ...]) -> CallValue:
    return CallValue(
        EFFECTS,
        _hash("c.effects", name),
        _hash("effects", name, *effects),
        ", ".join(effects) or "nothing",
        (),
        ((_hash("effects", *effects),),),
    )


@_kept
def _named(kind: int, name: str, text: str, whole: str) -> CallValue:
    wider = ((_hash(kind, text),), (_hash(kind, "of", whole),)) if text != whole else ((_hash(kind, text),),)
    return CallValue(kind, _hash("c.named", kind, name), _hash(kind, name, text), f"`{text}`", (), wider)


@_kept
def _word(kind: int, name: str, key: str, text: str) -> CallValue:
    return CallValue(
        kind, _hash("c.word", kind, name, key), _hash("word", kind, name, key, text), f"`{key}` of `{name}`"
    )


@_kept
def order_of(last: int, tool: int) -> ValueGroup:
    """A tool behind the one before."""
    return _grouped(CallValue(ORDER, _hash("c.order", last), _hash("order", last, tool), ""))


@lru_cache(maxsize=32)
def rate_of(step: int) -> CallValue:
    """A rate by its order of magnitude."""
    return CallValue(RATE, _hash("c.rate"), _hash("rate", step), f"about {2**step} calls a minute")


@_kept
def _magnitude(kind: int, name: str, key: str, step: int) -> CallValue:
    """A number by its order of magnitude; smaller ones than are known, and the next larger, say nothing."""
    steps = (step, *range(max(0, step - 1), step), *range(step + 1, min(step + 12, 62)))
    near = tuple(_hash(kind, name, key, other) for other in steps[1:])
    wider = (tuple(_hash("any", kind, other) for other in steps),)
    further = tuple(_hash("any", kind, other) for other in range(step - 1, max(-1, step - 14), -1))
    shown = f"`{key}` of `{name}` about {2**step}"
    return CallValue(kind, _hash("c.size", kind, name, key), _hash(kind, name, key, step), shown, near, wider, further)
