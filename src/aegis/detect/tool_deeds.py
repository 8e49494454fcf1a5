"""What a call does by the words of its tool and its members: a verb, the things it is done to, and how far it reaches.

A call can be made in other words: by an action among its members, as a request to the interface of a server, as a
mutation of GraphQL. Each is read the same way. Which words make which effect is data, in `data/tools`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from aegis.core.effects import ResourceEffect
from aegis.core.json import escape
from aegis.core.patterns import Lazy
from aegis.detect.endpoints import ALL, is_everything, is_refusal, path_of, plain
from aegis.detect.extract import readable
from aegis.detect.permissions import is_source, opened_networks
from aegis.detect.queries import Mutation
from aegis.detect.resources import host_place
from aegis.detect.self_running import parsed_json
from aegis.detect.tool_words import KnownDeed, Vocabulary, is_throwaway, letters_in, singular, spoken, vocabulary

MOST_MEMBERS: Final = 600  # of one call that are read
_DEEPEST: Final = 10
_LONGEST: Final = 160  # characters of a value that can be a name, a role or a switch
_LONGEST_DEED: Final = 48
_LONGEST_POLICY: Final = 4_096
_MOST_SHOWN: Final = 4


class Told(NamedTuple):
    """An effect, and the pointer of the member that shows it."""

    pointer: str
    effect: ResourceEffect


class _Member(NamedTuple):
    """A value of a call: its pointer, the words of its name and of those above it, and the name in small letters."""

    pointer: str
    words: frozenset[str]
    above: frozenset[str]
    name: str
    value: Any


class _Asked(NamedTuple):
    """What is asked for: its words, what is shown of it, and its members."""

    pointer: str
    words: frozenset[str]
    shown: str
    given: Mapping[str, Any]
    is_request: bool = False


@lru_cache(maxsize=8_192)
def speaks(tool: str) -> bool:
    """Whether the words of a tool say that it does something."""
    return not spoken(tool).isdisjoint(vocabulary().verbs)


def tool_deeds(tool: str, arguments: Mapping[str, Any], mutations: Sequence[Mutation] = ()) -> Iterator[Told]:
    """The effects that the words of a call show, and of the mutations in it, each once."""
    seen: set[str] = set()
    called = [_Asked(one.pointer, spoken(one.field), one.field, one.given) for one in mutations]
    for asked in (*called, _asked(tool, arguments)):
        for pointer, effect in _done(asked):
            if effect.name not in seen:
                seen.add(effect.name)
                yield Told(pointer, effect)


def _asked(tool: str, arguments: Mapping[str, Any]) -> _Asked:
    """What a call asks for by its tool, its action and kind, and the request that it makes."""
    words = spoken(tool)
    known = vocabulary()
    for name, value in arguments.items():
        meaning = plain(str(name))
        if meaning in known.members["action"]:
            if isinstance(value, str) and len(value) <= _LONGEST_DEED and " " not in value.strip():
                words |= spoken(value)
            elif isinstance(value, dict) and value:  # a command as an object: its first name is what is done
                words |= spoken(str(next(iter(value))))
        elif meaning in known.members["kind"] and isinstance(value, str) and len(value) <= _LONGEST_DEED:
            words |= spoken(value) | {singular(value.lower())}
    requested = _of_method(arguments, known)
    return _Asked("", words | requested, tool, arguments, bool(requested))


def _of_method(arguments: Mapping[str, Any], known: Vocabulary) -> frozenset[str]:
    """The words of a request: what its method does, and those of its path."""
    method = next((arguments[name] for name in _METHODS if isinstance(arguments.get(name), str)), "").upper()
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), "")
    if method not in known.values["methods"] or not path:
        return frozenset()
    found = {"delete"} if method == "DELETE" else {"update"} if method in ("PUT", "PATCH") else {"create"}
    parts = [part for part in path_of(readable(path)[0]).split("?", 1)[0].split("/") if part]
    if method == "POST" and parts and parts[-1] in _ASKS:
        return frozenset()
    for part in parts[-_MOST_PARTS:]:
        found |= spoken(part)
    return frozenset(found)


_ASKS: Final = frozenset(
    {"_search", "_count", "_msearch", "_mget", "_analyze", "_explain", "_field_caps", "_sql", "scroll"}
)
_METHODS: Final = ("method", "httpMethod", "http_method", "verb")
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


def _done(asked: _Asked) -> Iterator[tuple[str, ResourceEffect]]:
    known = vocabulary()
    possible, asked_for = _possible(asked.words)
    if not possible:
        return
    members = _members(asked.given)
    marks = _marks(asked, members, known, asked_for)
    is_said = bool(asked.pointer) or any(_says(one, known) for one in members)
    for deed in possible:
        if all(not wanted.isdisjoint(marks) for wanted in deed.when) and deed.unless.isdisjoint(marks.keys()):
            shown = [marks[mark] for wanted in deed.when for mark in sorted(wanted & marks.keys())][:1]
            member = shown[0] if shown else None
            pointer = asked.pointer if member is None else asked.pointer or member.pointer
            if not pointer and not is_said:
                continue  # what a tool is called says nothing about a call that names nothing
            values = _values(member, asked)
            yield pointer, deed.effect._replace(values=values, evidence=f"{asked.shown} {' '.join(values)}"[:_LONGEST])


def _says(member: _Member, known: Vocabulary) -> bool:
    """Whether a member names something, whatever it is: no switch does, and no sentence."""
    value = member.value
    if isinstance(value, str):
        return bool(value) and not member.words & known.members["sentences"] and len(value.split(None, 1)) == 1
    return isinstance(value, int) and not isinstance(value, bool)


def _values(member: _Member | None, asked: _Asked) -> tuple[str, ...]:
    """What the words of an approval name: what shows the mark, or what the call names."""
    if member is not None:
        return (member.name,) if isinstance(member.value, (bool, dict)) or member.value == "" else (str(member.value),)
    named = [value for value in asked.given.values() if isinstance(value, str) and 0 < len(value) <= _LONGEST_DEED]
    return tuple(named[:_MOST_SHOWN])


def _members(given: Mapping[str, Any]) -> list[_Member]:
    """Every value of a call that is no object, and every object that is empty."""
    found: list[_Member] = []
    waiting: list[tuple[str, str, frozenset[str], Any, int]] = [("", "", frozenset(), given, 0)]
    while waiting and len(found) < MOST_MEMBERS:
        pointer, name, above, value, depth = waiting.pop()
        if isinstance(value, str) and not value.isascii():
            value, _ = readable(value)
        if isinstance(value, str) and value[:1] == "{" and len(value) <= _LONGEST_POLICY and '"' in value:
            value = parsed_json(value) or value
        if isinstance(value, dict) and is_refusal(value):
            continue
        words = spoken(name)
        if isinstance(value, dict) and value and depth < _DEEPEST:
            called = next((value[key] for key in _KEYS if isinstance(value.get(key), str)), None)
            for key, inner in value.items():
                waiting.append((f"{pointer}/{escape(str(key))}", str(key), above | words, inner, depth + 1))
                if called is not None and plain(str(key)) in _HELD:  # `{"name": "x", "value": y}`
                    waiting.append((f"{pointer}/{escape(str(key))}", called, above | words, inner, depth + 1))
        elif isinstance(value, list) and depth < _DEEPEST:
            waiting.extend((f"{pointer}/{at}", name, above, inner, depth + 1) for at, inner in enumerate(value))
        else:
            found.append(_Member(pointer, words, above, plain(name), value))
    return found


_KEYS: Final = (
    "name", "Name", "key", "Key", "ParameterName", "id", "field", "setting", "parameter", "option", "property", "flag",
    "feature", "config",
)  # fmt: skip
_HELD: Final = frozenset({"value", "values", "parametervalue", "enabled"})


def _marks(asked: _Asked, members: Sequence[_Member], known: Vocabulary, wanted: frozenset[str]) -> dict[str, _Member]:
    """What the members of a call say beside its verb, each with the member that says it.

    What nobody asked for need not be there where it costs a walk of its own.
    """
    found: dict[str, _Member] = {}
    rare = not _RARE.isdisjoint(wanted)
    for member in members:
        for mark in _marks_of(member, asked, known):
            found.setdefault(mark, member)
        if rare and isinstance(member.value, str) and len(member.value) <= _LONGEST:
            for mark in _rare(member, member.value.strip().lower(), known):
                found.setdefault(mark, member)
    if "unprotected" not in found and "unprotected" in wanted:
        _switched_by_name(members, known, found)
    if asked.is_request and asked.words & known.values["production"]:
        found.setdefault("production", _Member("", frozenset(), frozenset(), "path", asked.shown))
    is_of_all = (asked.pointer or asked.is_request) and asked.words & _EVERY
    if is_of_all and not any(_names(member, known) for member in members):
        found.setdefault("all", _Member("", frozenset(), frozenset(), "all", "all"))
    for word, mark in (("public", "public"), ("anonymous", "public"), ("admin", "admin"), ("superuser", "admin")):
        if word in asked.words and asked.words.isdisjoint(_NOT_OPEN):
            found.setdefault(mark, _Member("", frozenset(), frozenset(), word, word))
    if _THROWAWAY in wanted:
        _throwaway(asked, members, known, found)
    opens = len(members) >= MOST_MEMBERS or any(is_source(one.name) or one.value == _LAST_ADDRESS for one in members)
    if opens and not _OF_NETWORKS.isdisjoint(wanted):
        for mark, source in opened_networks(asked.given, asked.words):
            found[mark] = _Member("", frozenset(), frozenset(), "source", source)
    return found


_RARE: Final = frozenset({
    "address", "boundless", "deletes", "endless", "payee", "some", "telltale", "unlocked", "wild", "wildname",
})  # fmt: skip
_THROWAWAY: Final = "throwaway"
_LAST_ADDRESS: Final = "255.255.255.255"
_OF_NETWORKS: Final = frozenset({"open-net", "every-port", "admin-port"})
_EVERY: Final = frozenset({"all", "every", "everything"})
_NOT_OPEN: Final = frozenset({"block", "key", "ip"})  # `public_access_block`, `public_key`, `public_ip`


@lru_cache(maxsize=8_192)
def _kinds(words: frozenset[str]) -> frozenset[str]:
    """What the words of a member's name say that it is."""
    return frozenset(kind for kind, names in vocabulary().members.items() if not names.isdisjoint(words))


def _marks_of(member: _Member, asked: _Asked, known: Vocabulary) -> Iterator[str]:
    value, kinds, name = member.value, _kinds(member.words), member.name
    switched = _switch(value, known)
    if switched is not None:
        yield from _switched(member, asked, switched, known)
    if value in (0, "0") and value is not False and "replicas" in kinds:
        yield "zero"
    if _is_short(member, known):
        yield "short"
    if "limits" in kinds and _NINES.fullmatch(str(value)) is not None:
        yield "boundless"
    if value in (0, 1) and not isinstance(value, bool) and "days" in kinds:
        yield "expires"
    is_condition = name in known.members["selects"] and not member.above & known.members["selects"]
    if is_condition and (is_everything(value) or value == "" or _ALWAYS.search(str(value)) is not None):
        yield "all"
    if not isinstance(value, str) or not value or len(value) > _LONGEST_POLICY:
        return
    lowered = value.strip().lower()
    is_role = "roles" in kinds
    is_selected = "any" not in kinds and not member.above & known.members["contents"]
    if lowered in ALL and is_selected and (not is_role or name in known.members["reaches"]):
        yield "all"
    if is_role and (
        _POWERS.search(value) is not None
        or (lowered in ALL and "grantable" in kinds)
        or lowered in known.values["admin"]
        or (" " not in lowered and lowered.replace("_", "-").rpartition("-")[2] in known.members["highest"])
        or plain(lowered.rpartition("/")[2]) in known.values["admin"]
        or ("groups" in kinds and lowered.rpartition(" ")[2] in known.values["admins"])
        or (lowered in ALL and asked.words & known.members["roles"])
    ):
        yield "admin"
    if (is_role or "policytexts" in kinds) and _SUDO.search(value) is not None:
        yield "admin"
    if lowered in ALL and "grants" in kinds and asked.words & known.members["roles"]:
        yield "admin"
    if len(value) > _LONGEST:
        return
    if "people" in kinds and lowered.partition("@")[0] in known.values["superuser"]:
        yield "superuser"
    if ("reached" in kinds or not known.members["reached"].isdisjoint(member.above)) and (
        plain(lowered) in known.values["public"]
        or (lowered == "default" and "scope" in member.above)
        or ("shared" in kinds and _says_everybody(spoken(value), known))
    ):
        yield "public"
    if "authentication" in kinds and lowered in known.values["off"]:
        yield "public"
    if "defaults" in kinds and lowered in known.values["admits"] and asked.words & known.members["protects"]:
        yield "unprotected"
    if "ciphers" in kinds and plain(lowered) in known.values["weak"]:
        yield "unprotected"
    if "branches" in kinds and lowered.rpartition("/")[2] in known.values["main"]:
        yield "main"
    if name in known.members["recordtype"] and value.strip().upper() in known.values["vital"]:
        yield "vital-record"
    if _names(member, known):
        said = letters_in(lowered)
        if said & known.values["production"]:
            yield "production"
        if spoken(value) & known.members["protects"]:
            yield "guarding"
        if said & known.values["audit"] and not lowered.startswith(("http:", "https:")):
            yield "audit"
    if "@" in value and "://" not in value:
        yield "person"
    if "://" in value and host_place(value) in ("address", "collector", "tunnel"):
        yield "outside"


def _says_everybody(words: frozenset[str], known: Vocabulary) -> bool:
    return not words.isdisjoint(known.values["openwords"]) and words.isdisjoint(known.members["shuts"])


def _rare(member: _Member, lowered: str, known: Vocabulary) -> Iterator[str]:
    """The marks of a short value that few deeds ask for."""
    kinds, name = _kinds(member.words), member.name
    if "states" in kinds and lowered in known.values["gone"]:
        yield "deletes"
    if "states" in kinds and lowered in known.values["unlocked"]:
        yield "unlocked"
    if not letters_in(lowered).isdisjoint(known.values["telltale"]):
        yield "telltale"
    if "payees" in kinds and any(char.isdigit() for char in lowered):
        yield "payee"
    if "*" in lowered and "texts" not in kinds:
        yield "wild"
        if name in known.members["hosts"]:
            yield "wildname"
    if "lasts" in kinds and (lowered in known.values["endless"] or _YEARS.fullmatch(lowered) is not None):
        yield "endless"
    if "limits" in kinds and lowered in known.values["endless"]:
        yield "boundless"
    if "idents" in kinds and lowered not in ALL:
        yield "some"
    if lowered[-1:].isdigit() and host_place(lowered) == "address":
        yield "address"


_YEARS: Final = Lazy(r"(?:\d{4,}h|\d{3,}d|\d{2,}w|p\d+y|\d+ ?y(?:ears?)?)")


def _switched_by_name(members: Sequence[_Member], known: Vocabulary, found: dict[str, _Member]) -> None:
    """Mark what is switched off by a name beside the switch: `{"flag": "require-mfa", "on": false}`."""
    switches = [one for one in members if _is_off(one, known)]
    if not switches:
        return
    guards = {
        one.pointer.rpartition("/")[0]
        for one in members
        if isinstance(one.value, str) and _names(one, known) and spoken(one.value) & known.values["safeguards"]
    }
    for one in switches if guards else ():
        above = one.pointer
        for _ in range(_NEAR):
            above = above.rpartition("/")[0]
            if above in guards:
                found["unprotected"] = one
                return


_NEAR: Final = 3  # objects between a switch and the name of what it switches


def _is_off(member: _Member, known: Vocabulary) -> bool:
    """Whether a member is a bare switch that is off, or the value nothing."""
    is_bare = bool(member.words) and member.words <= known.members["switches"]
    return is_bare and (member.value == 0 or _switch(member.value, known) is False)


def _switch(value: Any, known: Vocabulary) -> bool | None:
    """Whether a value switches something on or off; nothing for every other value."""
    if isinstance(value, str):
        lowered = value.strip().lower()
        return True if lowered in known.values["on"] else False if lowered in known.values["off"] else None
    return value if isinstance(value, bool) else None


def _switched(member: _Member, asked: _Asked, on: bool, known: Vocabulary) -> Iterator[str]:
    """What a member says that is switched on, or off."""
    words, kinds = member.words, _kinds(member.words)
    own = words - known.members["switches"]
    if on and "holds" in kinds and "negates" not in kinds:
        return  # `enable_purge_protection: true`
    if on:
        if "weakens" in kinds and words & known.members["negates"]:
            yield "unprotected"
        if "forces" in kinds:
            yield "force"
        if words & _EVERY and "any" not in kinds:
            yield "all"
        if any("delete" in known.verbs.get(word, ()) for word in words):
            yield "deletes"
        if _is_highest_flag(member, known):
            yield "admin"
        if "unrecoverable" in kinds or member.name in known.members["unrecoverable"]:
            yield "unrecoverable"
        if "opens" in kinds and "shuts" not in kinds:
            yield "public"
        if "writes" in kinds:
            yield "writable"
        denied = asked.words if words <= known.members["negates"] else words
        if "negates" in kinds and denied & known.members["protects"]:
            yield "unprotected"
        return
    if "hides" in kinds and "negates" not in kinds:
        yield "unhidden"
    if "readonly" in kinds:
        yield "writable"
    if "negates" in kinds or "may" in kinds:
        return
    # `deletion_protection: false`, `mfa: {enabled: false}`, and `enabled: false` said to what protects.
    said = words | (member.above if own <= known.members["switches"] or not own else frozenset())
    if not own or own <= known.members["switches"]:
        said |= asked.words
    is_bare = own <= known.members["switches"]
    if (
        said & known.members["protects"]
        or (is_bare and said & known.members["guards"])
        or ("demands" in kinds and len(own) > 1)
    ):
        yield "unprotected"


def _is_highest_flag(member: _Member, known: Vocabulary) -> bool:
    """Whether a switch says that somebody is an administrator."""
    return member.name.removeprefix("is") in known.values["admin"]


def _is_short(member: _Member, known: Vocabulary) -> bool:
    """Whether a time for which something is kept is none to speak of."""
    if "keeps" not in _kinds(member.words):
        return False
    text = str(member.value)
    if isinstance(member.value, bool) or not text.removeprefix("-").isdigit() or text.startswith("-"):
        return False
    parts = {"ms"} & member.words or {"second", "seconds"} & member.words
    least = _SHORT_MS if "ms" in parts else _SHORT_SECONDS if parts else 1
    return int(text[:_LONGEST_DEED]) <= least


_NINES: Final = Lazy(r"9{6,}(?:\.9+)?")
_SHORT_MS: Final = 3_600_000
_SHORT_SECONDS: Final = 3_600
# Rights that reach everything in directories, mail and customers' records, by the names that vendors gave them.
_POWERS: Final = Lazy(
    r"(?i)\b(?:RoleManagement|Directory|AppRoleAssignment|Application|User|Mail|Files|Sites)\.(?:ReadWrite|FullControl|Manage)\.(?:All|Directory)|"
    r"ModifyAll(?:Data|Records)|ManageUsers|AuthorApex|full_access_as_app|\b(?:domain|enterprise|schema) admins\b"
)
_SUDO: Final = Lazy(
    r"\"sudo\"|path\s+\"\*\"|\b(?:acl|operator)\s*=\s*\"write\"|_prefix\s+\"\"\s*\{\s*policy\s*=\s*\"write\"|namespace\s+\"\*\"\s*\{\s*policy\s*=\s*\"write\"|^\s*(?:\*|allow)\s*:\s*\*\s*$"
)
# A condition that every row or document fulfils, in the languages of forges, trackers and shops.
_ALWAYS: Final = Lazy(
    r"(?i)^\s*(?:\w+(?:\.\w+)?\s+(?:is\s+not|!=|<>)\s+(?:null|empty|''|\"\")|\(?1\s*=\s*1\)?|\w+\s+(?:like|~)\s+['\"][%*.]+['\"]|"
    r"(?:created|updated|id)\s*(?:>=?|<=?)\s*['\"]?(?:0|19\d\d\S*)['\"]?|\w+:\*|all)\s*$"
)


def _names(member: _Member, known: Vocabulary) -> bool:
    """Whether a member can hold the name of a thing that the call is about."""
    value = member.value
    return (
        isinstance(value, str)
        and 0 < len(value) <= _LONGEST
        and len(value.split(None, 1)) <= 1
        and ("texts" not in _kinds(member.words) or "names" in _kinds(member.words))
    )


def _throwaway(asked: _Asked, members: Sequence[_Member], known: Vocabulary, found: dict[str, _Member]) -> None:
    """Mark a call that names only what was made to be thrown away; a namespace counts for what lies in one."""
    if "production" in found or "all" in found or "main" in found:
        return
    naming = known.members["naming"] | asked.words
    named = [member for member in members if member.words & naming and _names(member, known)]
    kept = [member for member in named if not member.words & known.members["kindnames"]]
    spaces = [member for member in kept if member.words & known.members["spaces"]]
    others = [member for member in kept if member not in spaces]
    # What has the name of the thing itself, or no name but that it is one: not the database that a table lies in.
    own = [member for member in others if member.words & asked.words]
    things = [*own, *(member for member in others if member.name in known.members["generic"])] if own else others
    in_space = bool(spaces) and bool(asked.words & known.members["inspaces"])
    for judged in (spaces if in_space else (), things or (spaces if "namespace" in asked.words else ())):
        if judged and all(is_throwaway(str(member.value)) for member in judged):
            found[_THROWAWAY] = judged[0]
            return


def thrown_away(deed: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call names only what was made to be thrown away."""
    asked = _Asked("", spoken(deed), deed, arguments)
    return _THROWAWAY in _marks(asked, _members(arguments), vocabulary(), frozenset({_THROWAWAY}))
