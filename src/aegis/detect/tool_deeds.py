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
from aegis.detect.endpoints import ALL, is_everything, path_of, plain
from aegis.detect.extract import readable
from aegis.detect.mutations import mutations
from aegis.detect.resources import host_place
from aegis.detect.self_running import parsed_json
from aegis.detect.tool_words import KnownDeed, Vocabulary, letters_in, singular, spoken, vocabulary

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


def tool_deeds(tool: str, arguments: Mapping[str, Any]) -> Iterator[Told]:
    """The effects that the words of a call show, each once."""
    seen: set[str] = set()
    for asked in _asked(tool, arguments):
        for pointer, effect in _done(asked):
            if effect.name not in seen:
                seen.add(effect.name)
                yield Told(pointer, effect)


def _asked(tool: str, arguments: Mapping[str, Any]) -> Iterator[_Asked]:
    """What a call asks for: itself, the request that it makes, and each mutation of a text of GraphQL."""
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
        elif isinstance(value, str) and "mutation" in value:
            for field, given in mutations(value, arguments.get("variables")):
                yield _Asked(f"/{escape(str(name))}", spoken(field), field, given)
    requested = _of_method(arguments, known)
    yield _Asked("", words | requested, tool, arguments, bool(requested))


def _of_method(arguments: Mapping[str, Any], known: Vocabulary) -> frozenset[str]:
    """The words of a request: what its method does, and those of its path."""
    method = next((arguments[name] for name in _METHODS if isinstance(arguments.get(name), str)), "").upper()
    path = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), "")
    if method not in known.values["methods"] or not path:
        return frozenset()
    found = {"delete"} if method == "DELETE" else {"update"} if method in ("PUT", "PATCH") else {"create"}
    parts = [part for part in path_of(readable(path)[0]).split("?", 1)[0].split("/") if part]
    for part in parts[-_MOST_PARTS:]:
        found |= spoken(part)
    return frozenset(found)


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
    for member in members:
        for mark in _marks_of(member, asked, known):
            found.setdefault(mark, member)
    if asked.is_request and asked.words & known.values["production"]:
        found.setdefault("production", _Member("", frozenset(), frozenset(), "path", asked.shown))
    if asked.pointer and asked.words & _EVERY and not any(_names(member, known) for member in members):
        found.setdefault("all", _Member("", frozenset(), frozenset(), "all", "all"))
    for word, mark in (("public", "public"), ("anonymous", "public"), ("admin", "admin"), ("superuser", "admin")):
        if word in asked.words and asked.words.isdisjoint(_NOT_OPEN):
            found.setdefault(mark, _Member("", frozenset(), frozenset(), word, word))
    if _THROWAWAY in wanted:
        _throwaway(asked, members, known, found)
    sources = (known.members["sources"], known.members["lists"])
    opens = len(members) >= MOST_MEMBERS or any(one.name in names for one in members for names in sources)
    if opens and not _OF_NETWORKS.isdisjoint(wanted):
        found.update(_ports(asked, known))
    return found


_THROWAWAY: Final = "throwaway"
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
        or (lowered in ALL and asked.words & known.members["roles"])
        or _SUDO.search(value) is not None
    ):
        yield "admin"
    if lowered in ALL and "grants" in kinds and asked.words & known.members["roles"]:
        yield "admin"
    if len(value) > _LONGEST:
        return
    if "people" in kinds and lowered.partition("@")[0] in known.values["superuser"]:
        yield "superuser"
    if ("reached" in kinds or not known.members["reached"].isdisjoint(member.above)) and (
        plain(lowered) in known.values["public"] or (lowered == "*" and "everybody" in kinds)
    ):
        yield "public"
    if "authentication" in kinds and lowered in known.values["off"]:
        yield "public"
    if "defaults" in kinds and lowered in known.values["admits"] and asked.words & known.members["protects"]:
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
    if on:
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
    if "negates" in kinds:
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


_SHORT_MS: Final = 3_600_000
_SHORT_SECONDS: Final = 3_600
# Rights that reach everything in directories, mail and customers' records, by the names that vendors gave them.
_POWERS: Final = Lazy(
    r"(?i)\b(?:RoleManagement|Directory|AppRoleAssignment|Application|User|Mail|Files|Sites)\.(?:ReadWrite|FullControl|Manage)\.(?:All|Directory)|"
    r"ModifyAll(?:Data|Records)|ManageUsers|AuthorApex|full_access_as_app|\b(?:domain|enterprise|schema) admins\b"
)
_SUDO: Final = Lazy(r"\"sudo\"|path\s+\"\*\"|^\s*(?:\*|allow)\s*:\s*\*\s*$")
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
        if judged and all(_is_throwaway(str(member.value), known) for member in judged):
            found[_THROWAWAY] = judged[0]
            return


def thrown_away(deed: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call names only what was made to be thrown away."""
    asked = _Asked("", spoken(deed), deed, arguments)
    return _THROWAWAY in _marks(asked, _members(arguments), vocabulary(), frozenset({_THROWAWAY}))


def _is_throwaway(value: str, known: Vocabulary) -> bool:
    """Whether a name says that what it names was made to be thrown away."""
    lowered = value.lower()
    if not value.isascii() or ".." in value or any(sign in value for sign in "*?,;%$"):
        return False
    said = letters_in(lowered)
    return not said & known.values["production"] and (
        bool(said & known.values["throwaway"]) or _NUMBERED.search(lowered) is not None
    )


_NUMBERED: Final = Lazy(r"(?:^|[^a-z])(?:pr|mr)-?\d+(?:$|[^a-z])")  # of a request to merge


# Networks: an open source and the ports that it may reach, in one rule or in what stands around it.
_INHERITED: Final = ("ports", "direction", "protocols")


def _ports(asked: _Asked, known: Vocabulary) -> Iterator[tuple[str, _Member]]:
    """The marks of a rule that lets everybody in."""
    waiting: list[tuple[Any, tuple[tuple[str, Any], ...], int]] = [(asked.given, (), 0)]
    seen = 0
    while waiting and seen < MOST_MEMBERS:
        value, around, depth = waiting.pop()
        seen += 1
        if depth > _DEEPEST:
            continue
        if isinstance(value, list):
            waiting.extend((inner, around, depth + 1) for inner in value)
        elif isinstance(value, dict):
            here = tuple((plain(str(name)), inner) for name, inner in value.items())
            own = tuple(one for one in here if any(one[0] in known.members[kind] for kind in _INHERITED))
            ports = any(one[0] in known.members["ports"] for one in own)
            above = (*own, *(one for one in around if not (ports and one[0] in known.members["ports"])))
            yield from _opened(here, above, known)
            waiting.extend((inner, above, depth + 1) for inner in value.values() if isinstance(inner, (dict, list)))


def _opened(
    here: tuple[tuple[str, Any], ...], above: tuple[tuple[str, Any], ...], known: Vocabulary
) -> Iterator[tuple[str, _Member]]:
    sources = [
        one
        for name, value in here
        if name in known.members["sources"] or name in known.members["lists"]
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str)
        and (one.lower() in known.values["networks"] or (one in ("*", "any") and name in known.members["sources"]))
    ]
    if not sources:
        return
    said = {str(value)[:_LONGEST].lower() for name, value in above if name in known.members["direction"]}
    if said & known.values["outward"]:
        return
    member = _Member("", frozenset(), frozenset(), "source", sources[0])
    yield "open-net", member
    if any(name in known.members["allowed"] for name, _ in here):
        yield "every-port", member
    above = (*above, *_below(here))
    ports = [(name, value) for name, value in above if name in known.members["ports"]]
    said_ports = [str(one) for _, value in ports for one in (value if isinstance(value, list) else [value])]
    protocols = {str(value).lower() for name, value in above if name in known.members["protocols"]}
    numbers = [number for one in said_ports for number in _NUMBER.findall(one)]
    edges = [int(number) for number in numbers if len(number) <= 5]
    whole = any(one.strip().lower() in known.values["everyport"] for one in said_ports)
    is_wide = len(edges) == _EDGES and max(edges) - min(edges) > _WIDE and _is_range(ports)
    if (not ports and protocols & known.values["everyprotocol"]) or whole or is_wide:
        yield "every-port", member
    elif any(number in known.values["adminports"] for number in numbers):
        yield "admin-port", member


def _below(here: tuple[tuple[str, Any], ...]) -> Iterator[tuple[str, Any]]:
    """The members of the objects that a rule holds, one level down: `allowed: [{ports: [443]}]`."""
    for _, value in here:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, dict):
                yield from ((plain(str(name)), inner) for name, inner in one.items())


_NUMBER: Final = Lazy(r"\d+")
_WIDE: Final = 1_000
_EDGES: Final = 2


def _is_range(ports: Sequence[tuple[str, Any]]) -> bool:
    """Whether two numbers are the ends of a range, and no list of two ports."""
    return len(ports) > 1 or any(isinstance(value, str) and ("-" in value or ":" in value) for _, value in ports)
