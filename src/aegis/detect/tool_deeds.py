"""What a call does by the words of its tool and its members: a verb, the things it is done to, and how far it reaches.

A call can be made in other words: by an action among its members, as a request to the interface of a server, as a
mutation of GraphQL. Each is read the same way. Which words make which effect is data, in `data/tools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import islice, pairwise, takewhile
from typing import Any, Final, NamedTuple

from aegis.core.effects import ResourceEffect
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import path_of, plain, routed
from aegis.detect.extract import readable
from aegis.detect.queries import Mutation
from aegis.detect.tool_marks import marked
from aegis.detect.tool_members import LONGEST, AskedFor, Member, members_of
from aegis.detect.tool_words import KnownDeed, Vocabulary, is_throwaway, singular, spoken, vocabulary

_LONGEST_DEED: Final = 48
_MOST_SHOWN: Final = 4


class Told(NamedTuple):
    """An effect, and the pointer of the member that shows it."""

    pointer: str
    effect: ResourceEffect


@lru_cache(maxsize=8_192)
def speaks(tool: str) -> bool:
    """Whether the words of a tool say that it does something, or name a thing and no verb at all."""
    words = spoken(tool)
    return not words.isdisjoint(vocabulary().verbs) or _names_only(words)


def _names_only(words: frozenset[str]) -> bool:
    """Whether words name a thing that something can be done to, and neither say nor ask anything."""
    known = vocabulary()
    if not words.isdisjoint(known.verbs) or not words.isdisjoint(known.values["ask"]):
        return False
    return not words.isdisjoint(_things())


@cache
def _things() -> frozenset[str]:
    """Every thing that some deed is done to."""
    return frozenset(thing for deeds in vocabulary().deeds.values() for deed in deeds for thing in deed.things)


def tool_deeds(tool: str, arguments: Mapping[str, Any], mutations: Sequence[Mutation] = ()) -> Iterator[Told]:
    """The effects that the words of a call show, and of the mutations in it, each once."""
    seen: set[str] = set()
    called = [AskedFor(one.pointer, spoken(one.field), one.field, one.given) for one in mutations]
    for asked in (*called, _asked(tool, arguments)):
        for pointer, effect in _done(asked):
            if effect.name not in seen:
                seen.add(effect.name)
                yield Told(pointer, effect)


def _asked(tool: str, arguments: Mapping[str, Any]) -> AskedFor:
    """What a call asks for by its tool, its action and kind, and the request that it makes."""
    words = spoken(tool)
    known = vocabulary()
    for name, value in arguments.items():
        meaning = plain(str(name))
        if meaning in known.members["action"]:
            if isinstance(value, str) and len(value) <= _LONGEST_DEED and " " not in value.strip():
                words |= spoken(value)
            elif isinstance(value, dict) and value and meaning != "request":  # its first name is what is done
                words |= spoken(str(next(iter(value))))
        elif meaning in known.members["kind"] and isinstance(value, str) and len(value) <= _LONGEST_DEED:
            words |= spoken(value) | {singular(value.lower())}
    if not words.isdisjoint(_TAKES_BACK):  # `kms_cancel_key_deletion`
        words -= _DELETION
    requested = _of_method(tool, arguments, known)
    if requested:
        words -= _SENDS
    elif _names_only(words):
        words |= _COME_ABOUT
    return AskedFor("", words | requested, tool, arguments, bool(requested))


_TAKES_BACK: Final = frozenset({"cancel", "abort", "undo", "restore", "recover", "prevent"})
_DELETION: Final = frozenset({"deletion", "removal", "termination", "keydeletion"})
_SENDS: Final = frozenset({"post"})  # what the method of a request is called, and no post that people read
_COME_ABOUT: Final = frozenset({"set"})  # what a tool without a verb does: `azure_nsg_rule`


def _of_method(tool: str, arguments: Mapping[str, Any], known: Vocabulary) -> frozenset[str]:
    """The words of a request: what its method does, and those of its path."""
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), "")
    method = next((arguments[name] for name in _METHODS if isinstance(arguments.get(name), str)), "").upper()
    method, path = routed(path) or (method, path)
    if not method and _API.search(path) is not None:  # `wiki_post`
        method = tool.rpartition("_")[2].upper()
    if method not in known.values["methods"] or not path:
        return frozenset()
    found = {"delete"} if method == "DELETE" else {"update"} if method in ("PUT", "PATCH") else {"create"}
    parts = [part for part in path_of(readable(path)[0]).split("?", 1)[0].split("/") if part]
    tried = parts[-1:] == ["_update_by_query"] and is_throwaway(parts[0]) and "ctx.op" not in str(arguments.get("body"))
    if method == "POST" and parts and (parts[-1] in _ASKS or tried):
        return frozenset()
    for at, part in enumerate(parts[-_MOST_PARTS:], max(0, len(parts) - _MOST_PARTS)):
        if at or part not in _FOR_ADMINISTRATORS:
            found |= spoken(part)
    return frozenset(found)


_FOR_ADMINISTRATORS: Final = ("admin",)  # an interface for them, and no role that is given
_ASKS: Final = frozenset(
    {"_search", "_count", "_msearch", "_mget", "_analyze", "_explain", "_field_caps", "_sql", "scroll"}
)
_API: Final = Lazy(r"/(?:api|apis|rest|v\d{1,2})/")
_METHODS: Final = ("method", "httpMethod", "http_method", "verb", "http")
_PATHS: Final = ("url", "path", "endpoint", "uri", "route")
_MOST_PARTS: Final = 6


@lru_cache(maxsize=4_096)
def _possible(words: frozenset[str]) -> tuple[tuple[KnownDeed, ...], frozenset[str]]:
    """The deeds that some words can be, and the marks that they ask for; the same tools come in call after call."""
    known = vocabulary()
    verbs = {verb for word in words for verb in known.verbs.get(word, ())}
    deeds = dict.fromkeys(deed for verb in sorted(verbs) for deed in known.deeds.get(verb, ()))
    possible = tuple(
        deed
        for deed in deeds
        if (not deed.things or not deed.things.isdisjoint(words)) and deed.unless.isdisjoint(words)
    )
    return possible, frozenset(mark for deed in possible for marks in (*deed.when, deed.unless) for mark in marks)


def _done(asked: AskedFor) -> Iterator[tuple[str, ResourceEffect]]:
    known = vocabulary()
    possible, asked_for = _possible(asked.words)
    if not possible:
        return
    members = members_of(asked.given)
    marks = marked(asked, members, known, asked_for)
    is_said = bool(asked.pointer) or any(_says(one, known) for one in members)
    for deed in possible:
        if all(not wanted.isdisjoint(marks) for wanted in deed.when) and deed.unless.isdisjoint(marks.keys()):
            shown = [marks[mark] for wanted in deed.when for mark in sorted(wanted & marks.keys())][:1]
            member = shown[0] if shown else None
            pointer = asked.pointer if member is None else asked.pointer or member.pointer
            if not pointer and not is_said:
                continue  # what a tool is called says nothing about a call that names nothing
            values = _values(member, asked)
            yield pointer, deed.effect._replace(values=values, evidence=f"{asked.shown} {' '.join(values)}"[:LONGEST])


def _says(member: Member, known: Vocabulary) -> bool:
    """Whether a member names something, whatever it is: no switch does, and no sentence."""
    value = member.value
    if isinstance(value, str):
        return bool(value) and not member.words & known.members["sentences"] and len(value.split(None, 1)) == 1
    return isinstance(value, int) and not isinstance(value, bool)


def _values(member: Member | None, asked: AskedFor) -> tuple[str, ...]:
    """What the words of an approval name: what shows the mark, or what the call names."""
    if member is not None:
        return (member.name,) if isinstance(member.value, (bool, dict)) or member.value == "" else (str(member.value),)
    named = [value for value in asked.given.values() if isinstance(value, str) and 0 < len(value) <= _LONGEST_DEED]
    return tuple(named[:_MOST_SHOWN])


def stated_deeds(text: str) -> Iterator[ResourceEffect]:
    """The effects of statements that set up a database, each read as a call of a tool with the words of its verb.

    `ALTER SERVER AUDIT a WITH (STATE = OFF)` alters a server audit with the members `name` and `state`.
    """
    known = vocabulary().values
    for match in islice(_SETS_UP.finditer(text), _MOST_STATED):
        verb, tokens = match.group(1).lower(), _SAID.findall(match.group(2))
        kind = [one.lower() for one in takewhile(lambda one: one.lower() in known["sqlkinds"], tokens)]
        rest = tokens[len(kind) :] or kind[-1:]
        given = dict(_settings(rest, bare=verb == "set"))
        if verb == "grant":  # roles, where no right over something is
            roles = [*takewhile(lambda one: one.lower() not in ("to", "on", "all"), tokens)]
            kind, given = ["role"], {"role": roles} if tokens[len(roles) : len(roles) + 1] in (["to"], ["TO"]) else {}
        elif rest and verb != "set" and rest[0].lower() not in known["sqlclauses"]:
            given["name"] = rest[0].strip("'\"`[]")
        for _, effect in tool_deeds(f"{verb} {' '.join(kind)}", given):
            if effect.verb != "delete" or effect.resource in _KEPT:
                yield effect._replace(evidence=match.group().strip()[:LONGEST])


def _settings(tokens: Sequence[str], *, bare: bool) -> Iterator[tuple[str, Any]]:
    """What a statement sets: `A = b`, `A TO b`, `A OFF`, `UNSET a`, `DISABLE a b`."""
    clauses = vocabulary().values["sqlclauses"]
    for at, (word, after) in enumerate(pairwise((*tokens, ""))):
        lowered = word.lower()
        name = next((one.strip("'") for one in reversed(tokens[max(at - 2, 0) : at]) if one != ")"), "")
        value: Any = word
        if lowered in ("enable", "disable", "unset"):
            named = "_".join(takewhile(lambda one: one.isidentifier() and one.lower() not in clauses, tokens[at + 1 :]))
            name, value = named, lowered == "enable"
        elif (word == "=" or (bare and lowered == "to")) and after:
            listed = [one.strip("'\"") for one in takewhile(")".__ne__, tokens[at + 2 :])]
            value = listed if after == "(" else after.strip("'\"")
        elif lowered not in ("on", "off") or not at or name.lower() in clauses:
            continue
        if _OF_INTEGRITY.search(name) is None:
            yield name, value


_SETS_UP: Final = Lazy(r"(?i)(?:^|;|\bbegin\b)\s*(alter|create|drop|grant|modify|set|disable|enable)\s+([^;]{1,600})")
_SAID: Final = Lazy(r"[A-Za-z_@$][\w$.@-]*|'[^']*'|\"[^\"]*\"|`[^`]*`|\[[^\]]*\]|\d[\w.]*|[=(),*]")
_KEPT: Final = frozenset({"credential", "backup", "log", "cloud-log"})  # tables and databases are read in their tree
# Checks of keys and names that every load of a dump turns off, and what speeds a table up.
_OF_INTEGRITY: Final = Lazy(r"(?i)foreign|unique|constraint|bodies|index|ansi|parallel|must_|^$")
_MOST_STATED: Final = 64
