"""What tools call what they do: verbs, things, marks of a call, and the effects that they make together, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Final, NamedTuple

import msgspec
import re2

from aegis.core.effects import ResourceEffect, names_matched
from aegis.core.json import convert
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.quick import one_of
from aegis.detect.roles import words_of
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

# What the members of a call say beside its verb and its things; `tool_marks` finds them.
MARKS: Final = frozenset({
    "all",  # everything is selected: by a wildcard, a condition that is always true, or a member that says so
    "production",  # a name of what others live on
    "throwaway",  # every name says that it was made to be thrown away, and none says anything else
    "main",  # the branch that everybody builds on
    "force", "zero", "public", "admin", "superuser", "unprotected", "writable", "short",
    "open-net", "every-port", "admin-port", "audit", "vital-record", "outside", "unrecoverable",
    "unhidden", "deletes", "guarding", "expires", "person", "unlocked", "endless", "boundless", "payee", "telltale",
    "wild",  # a name with a wildcard in it
    "wildname",  # a host with one
    "address",  # a machine of the Internet by its number
    "some",  # named one by one
    "item",  # one of what lies in the thing that is named
    "inside",  # one of what lies in a place that is named, whose name says production
    "ruled-open",  # rules of a database under which everybody writes
    "wired",  # where something calls from now on is a machine by its number
    "door",  # the name of a host at which people sign in
    "elsewhere",  # a host that lies in no zone that the call names
})  # fmt: skip


class ToolExample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A call that shows a deed, or one that must not."""

    tool: str
    arguments: dict[str, Any] = {}


class ToolDeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """An effect, and what has to stand together in a call that has it.

    One of `verbs` must be said, one of `things` where there are any, `@` before a class of them, and every mark of
    `when`: of those divided by `|` one. Nothing of `unless` may be, a mark or a thing.
    """

    does: str
    verbs: tuple[str, ...]
    things: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    found: tuple[ToolExample, ...] = ()
    passes: tuple[ToolExample, ...] = ()


class ToolRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """An effect of a request to the interface of a server, by its method and its path without the host.

    A path in which `unless` occurs has no such effect, and where it is one of what is `live` no host with a name for
    trying things out has. `found` and `pass` are lines of `METHOD url`.
    """

    does: str
    methods: tuple[str, ...]
    path: str
    unless: str = ""
    live: bool = False
    found: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


class ToolStatement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """An effect of a statement in the language of a database or a search, by a pattern without regard to case.

    One with `only_sql` is looked for where a text is known to be SQL: elsewhere its words may be anybody's. What a
    group of the pattern holds is what it is done to: it has no such effect on what was made to be thrown away. One
    with `only_steps` is what somebody presses or types who drives a browser or a desktop.
    """

    does: str
    pattern: str
    only_sql: bool = False
    only_steps: bool = False
    found: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


class ToolCommand(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """What the words of a tool say that it does to a machine, in command lines with its members in their places.

    A tool is meant in whose name all words of one of `names` stand, or no others behind a `=`. Of the members in
    `when` that are given each holds one of its values.
    """

    names: tuple[str, ...]
    lines: tuple[str, ...]
    when: Mapping[str, tuple[str, ...]] = {}
    found: tuple[ToolExample, ...] = ()
    passes: tuple[ToolExample, ...] = ()


class ToolFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of what tools do: `verbs` and `things` are classes of words, `members` are names with a meaning."""

    about: str
    verbs: Mapping[str, tuple[str, ...]] = {}
    things: Mapping[str, tuple[str, ...]] = {}
    members: Mapping[str, tuple[str, ...]] = {}
    values: Mapping[str, tuple[str, ...]] = {}
    deeds: tuple[ToolDeed, ...] = ()
    requests: tuple[ToolRequest, ...] = ()
    statements: tuple[ToolStatement, ...] = ()
    commands: tuple[ToolCommand, ...] = ()


class KnownDeed(NamedTuple):
    """A deed with its words spelt out."""

    effect: ResourceEffect
    verbs: frozenset[str]
    things: frozenset[str]
    when: tuple[frozenset[str], ...]
    unless: frozenset[str]


class KnownRequest(NamedTuple):
    """A kind of request, with its patterns compiled."""

    methods: frozenset[str]
    path: Any
    unless: Any
    live: bool
    effect: ResourceEffect


class KnownStatements(NamedTuple):
    """Which of its statements may occur in a text, as numbers, and each with its pattern."""

    may: Callable[[str], list[int]]
    each: tuple[tuple[Any, ResourceEffect], ...]


class Vocabulary(NamedTuple):
    """Every word with the verbs that it stands for, members and values by their meaning, and deeds by their verbs."""

    verbs: Mapping[str, frozenset[str]]
    members: Mapping[str, frozenset[str]]
    values: Mapping[str, frozenset[str]]
    deeds: Mapping[str, tuple[KnownDeed, ...]]
    requests: tuple[KnownRequest, ...]


@cache
def statements(*, sql: bool, steps: bool = False) -> KnownStatements:
    """The statements of every language, those that are looked for in SQL alone among them or not; or only `steps`."""
    every = [one for file in builtin_tools() for one in file.statements]
    told = [one for one in every if one.only_steps == steps and (sql or not one.only_sql)]
    patterns = [f"(?i){one.pattern}" for one in told]
    known = tuple((Lazy(pattern), effect_of(one.does)) for pattern, one in zip(patterns, told, strict=True))
    return KnownStatements(one_of(*patterns), known)


@lru_cache(maxsize=8_192)
def commands_of(tool: str) -> tuple[ToolCommand, ...]:
    """What a tool does to a machine by the words of its name; most tools do nothing to one."""
    words = frozenset(words_of(tool))
    return tuple(
        one
        for file in builtin_tools()
        for one in file.commands
        if any(
            words == {*name[1:].split()} if name[:1] == "=" else words.issuperset(name.split()) for name in one.names
        )
    )


@cache
def vocabulary() -> Vocabulary:
    """Every file of what tools do as one; raises as `load_tools` does."""
    files = builtin_tools()
    verbs: dict[str, set[str]] = {}
    things: dict[str, tuple[str, ...]] = {}
    members: dict[str, set[str]] = {}
    values: dict[str, set[str]] = {}
    for file in files:
        for verb, words in file.verbs.items():
            for word in words:
                verbs.setdefault(word, set()).add(verb)
        things.update(file.things)
        for name, words in file.members.items():
            members.setdefault(name, set()).update(words)
        for name, words in file.values.items():
            values.setdefault(name, set()).update(words)
    by_verb: dict[str, list[KnownDeed]] = {}
    for one in (deed for file in files for deed in file.deeds):
        deed = KnownDeed(
            effect_of(one.does),
            frozenset(one.verbs),
            _spelt(one.things, things),
            tuple(frozenset(each.split("|")) for each in one.when),
            _spelt(one.unless, things),
        )
        for verb in deed.verbs:
            by_verb.setdefault(verb, []).append(deed)
    requests = [
        KnownRequest(
            frozenset(one.methods),
            re2.compile(one.path),
            re2.compile(one.unless) if one.unless else None,
            one.live,
            effect_of(one.does),
        )
        for file in files
        for one in file.requests
    ]
    return Vocabulary(
        {word: frozenset(classes) for word, classes in verbs.items()},
        {name: frozenset(words) for name, words in members.items()},
        {name: frozenset(words) for name, words in values.items()},
        {verb: tuple(deeds) for verb, deeds in by_verb.items()},
        tuple(requests),
    )


def _spelt(names: Sequence[str], things: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(word for name in names for word in (things[name[1:]] if name[:1] == "@" else (name,)))


def effect_of(does: str) -> ResourceEffect:
    """The effect of which `does` is the name, `verb resource` or `verb resource scope`."""
    parts = does.split()
    verb, resource, scope = (*parts, "one")[:3]
    return ResourceEffect(verb, resource, scope)  # type: ignore[arg-type]  # checked when the file was read


@lru_cache(maxsize=8_192)
def spoken(name: str) -> frozenset[str]:
    """The words of a name, each as one thing, and each pair of neighbours as one word: `resource groups`."""
    words = words_of(name)
    single = [singular(word) for word in words]
    pairs = [f"{first}{second}" for first, second in zip(words, single[1:], strict=False)]
    threes = [f"{pair}{last}" for pair, last in zip(pairs, single[2:], strict=False)]
    return frozenset([*words, *single, *pairs, *threes])


@lru_cache(maxsize=8_192)
def acts(tool: str) -> bool:
    """Whether a tool's name says something else than that it asks for something or edits a text."""
    words = words_of(tool)
    return _EDITS.isdisjoint(words) and vocabulary().values["ask"].isdisjoint(words)


def asks(tool: str) -> bool:
    """Whether a tool's name says that it only asks for something."""
    return not vocabulary().values["ask"].isdisjoint(words_of(tool))


_EDITS: Final = frozenset({"edit", "multiedit", "replace"})  # what stands there is read as text


class _Letters(dict[int, str]):
    """Small letters as they are, and a blank for everything else."""

    def __missing__(self, _: int) -> str:
        return " "


_LETTERS: Final = _Letters({ord(letter): letter for letter in ascii_lowercase})


def letters_in(lowered: str) -> frozenset[str]:
    """The words of a value, whatever stands between them."""
    return frozenset(lowered.translate(_LETTERS).split())


def is_throwaway(value: str) -> bool:
    """Whether a name says that what it names was made to be thrown away, and nothing that others live on."""
    known = vocabulary()
    lowered = value.lower()
    if not value.isascii() or ".." in value or any(sign in value for sign in "*?,;%$"):
        return False
    said = letters_in(lowered)
    if not said.isdisjoint(known.values["production"]) or not said.isdisjoint(known.values["lived"]):
        return False
    if any(word.startswith("prod") and not word.startswith("product") for word in said):
        return False  # `prodeu-test`
    return not said.isdisjoint(known.values["throwaway"]) or _NUMBERED.search(lowered) is not None


def is_scratch(table: str) -> bool:
    """Whether a table lies in a schema that was made to be thrown away, or in one session of SQL Server (`#rows`)."""
    name = "".join(char for char in table if char not in _QUOTES)
    schema, _, _ = name.rpartition(".")
    return name[:1] == "#" or (is_throwaway(name) and is_throwaway(schema))


_QUOTES: Final = frozenset('"`[]')
# Of a request to merge, or of one run of a build server.
_NUMBERED: Final = Lazy(r"(?:^|[^a-z])(?:(?:pr|mr)-?|ci[_-](?:(?:run|job|build)[_-])?)\d+(?:$|[^a-z])")


def singular(word: str) -> str:
    """A word as one thing."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


@cache
def builtin_tools() -> tuple[ToolFile, ...]:
    """Every file of what tools do that ships with Aegis; raises as `load_tools` does."""
    files = load_tools(tool_folder(), cache=default_cache_folder())
    if not files:  # without them every call of an administrator's tool would look harmless
        raise missing("data/tools")
    return files


def tool_folder() -> Path:
    """The folder of what tools do; raises `ConfigError` where the installation lacks it."""
    return shipped_folder("data/tools")


def load_tools(folder: Path, *, cache: Path | None = None) -> tuple[ToolFile, ...]:
    """Read every file of a folder; raises `ConfigError` with one problem for each deed that is wrong."""
    return load_files(folder, "tools", Path(__file__), ToolFile, _checked, cache=cache)


def _checked(name: str, text: str) -> ToolFile:
    from aegis.detect.rules.load import parse  # YAML is read where nothing was kept

    value, _ = parse(text, name)
    try:
        file = convert(value, ToolFile)
    except msgspec.ValidationError as error:
        raise ConfigError((Problem(message=str(error), file=name),)) from error
    problems = []
    described: tuple[ToolDeed | ToolRequest | ToolStatement, ...] = (*file.deeds, *file.requests, *file.statements)
    for one in described:
        if not one.found or not one.passes:
            problems.append(Problem(message=f"`{one.does}` needs a `found` and a `pass` example", file=name))
        try:
            names_matched(one.does)
        except ValueError as error:
            problems.append(Problem(message=str(error), file=name))
    for deed in file.deeds:
        marks = {mark for each in deed.when for mark in each.split("|")}
        problems += [Problem(message=f"`{mark}` is not a mark", file=name) for mark in sorted(marks - MARKS)]
    if problems:
        raise ConfigError(tuple(problems))
    return file
