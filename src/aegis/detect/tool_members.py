"""The members of a call: each value with its name, what the words of the name say that it is, and what stands above."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from aegis.core.json import escape
from aegis.detect.endpoints import is_everything, is_refusal, is_wide, patched, plain
from aegis.detect.extract import readable
from aegis.detect.self_running import parsed_json
from aegis.detect.tool_words import Vocabulary, spoken, vocabulary

MOST_MEMBERS: Final = 600  # of one call that are read
_DEEPEST: Final = 10
LONGEST: Final = 160  # characters of a value that can be a name, a role or a switch
LONGEST_POLICY: Final = 4_096


class Member(NamedTuple):
    """A value of a call: its pointer, the words of its name and of those above it, and the name in small letters."""

    pointer: str
    words: frozenset[str]
    above: frozenset[str]
    name: str
    value: Any


class AskedFor(NamedTuple):
    """What is asked for: its words, what is shown of it, and its members."""

    pointer: str
    words: frozenset[str]
    shown: str
    given: Mapping[str, Any]
    is_request: bool = False


def members_of(given: Mapping[str, Any]) -> list[Member]:
    """Every value of a call that is no object, and every object that is empty."""
    found: list[Member] = []
    waiting: list[tuple[str, str, frozenset[str], Any, int]] = [("", "", frozenset(), given, 0)]
    while waiting and len(found) < MOST_MEMBERS:
        pointer, name, above, value, depth = waiting.pop()
        if isinstance(value, str) and not value.isascii():
            value, _ = readable(value)
        if isinstance(value, str) and value[:1] == "{" and len(value) <= LONGEST_POLICY and '"' in value:
            value = parsed_json(value) or value
        if isinstance(value, dict) and is_refusal(value):
            continue
        words = spoken(name)
        put = patched(value) if isinstance(value, dict) else None
        if put is not None:  # of a patch: as if it stood at its place
            around = above.union(words, *map(spoken, put.above))
            waiting.append((f"{pointer}/value", put.name, around, put.value, depth + 1))
            continue
        if isinstance(value, list) and plain(name) in _MATCHERS:
            value = [one for one in value if not is_wide(one)] or {}
        if isinstance(value, dict) and plain(name) in vocabulary().members["selects"] and is_everything(value):
            found.append(Member(pointer, words, above, plain(name), {}))  # whichever way it is written
            continue
        if isinstance(value, dict) and value and depth < _DEEPEST:
            called = next((value[key] for key in _KEYS if isinstance(value.get(key), str)), None)
            for key, inner in value.items():
                waiting.append((f"{pointer}/{escape(str(key))}", str(key), above | words, inner, depth + 1))
                if inner is True and words and plain(str(key)) in _SWITCHED:  # `{"publicAccess": {"enabled": true}}`
                    waiting.append((f"{pointer}/{escape(str(key))}", name, above, inner, depth + 1))
                if called is not None and plain(str(key)) in _HELD:  # `{"name": "x", "value": y}`
                    waiting.append((f"{pointer}/{escape(str(key))}", called, above | words, inner, depth + 1))
        elif isinstance(value, list) and depth < _DEEPEST:
            waiting.extend((f"{pointer}/{at}", name, above, inner, depth + 1) for at, inner in enumerate(value))
        else:
            found.append(Member(pointer, words, above, plain(name), value))
    return found


_KEYS: Final = (
    "name", "Name", "key", "Key", "ParameterName", "id", "field", "setting", "parameter", "option", "property", "flag",
    "feature", "config",
)  # fmt: skip
_MATCHERS: Final = frozenset({"matchers"})  # of which all must hold
_SWITCHED: Final = frozenset({"enabled", "active", "on", "isenabled", "isactive"})
_HELD: Final = frozenset({"value", "values", "parametervalue", "enabled"})


@lru_cache(maxsize=8_192)
def kinds_of(words: frozenset[str]) -> frozenset[str]:
    """What the words of a member's name say that it is."""
    return frozenset(kind for kind, names in vocabulary().members.items() if not names.isdisjoint(words))


def names_a_thing(member: Member, known: Vocabulary) -> bool:
    """Whether a member can hold the name of a thing that the call is about."""
    value = member.value
    return (
        isinstance(value, str)
        and 0 < len(value) <= LONGEST
        and len(value.split(None, 1)) <= 1
        and ("texts" not in kinds_of(member.words) or "names" in kinds_of(member.words))
    )
