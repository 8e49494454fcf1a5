"""What calls of other people's libraries do and make, as data: `data/calls/*.yaml`, one file a language.

A call is known by its name in full (`shutil.rmtree`, whatever it was imported as), or a method by its name behind a dot
(`.unlink`). An entry says what it does to which argument; the resource is read from that argument's value, unless the
entry names it. What a call makes (`values`) is followed: joined paths, formats, decoded constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Final, Literal, cast

import msgspec

from aegis.core.effects import EffectScope, Resource, Verb, names_matched
from aegis.core.json import convert
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.languages.syntax import CodeLanguage
from aegis.detect.quick import one_of
from aegis.detect.rules.cache import default_cache_folder, load_files
from aegis.errors import ConfigError, Problem

Makes = Literal[
    "join", "same", "text", "parent", "parents", "environment", "format", "replace", "concat", "lower", "split",
    "base64", "base32", "hex", "rot13", "codes", "codec", "buffer", "reversed", "inside", "listed", "member", "first",
    "part", "key", "values", "pairs", "list", "table", "together", "added", "numbered", "zipped", "entries", "keys",
    "members", "alternating", "json", "replace-in", "crossed", "split-by", "or", "link",
    # What is computed, by `languages/computed`; `sorted`, `least` and `greatest` by how the call says what is compared.
    "upper", "capital", "small-first", "trimmed", "trimmed-front", "trimmed-end", "without-front", "without-end",
    "swapped-case", "swapped", "padded-front", "padded-end", "zeroed", "repeated", "chars", "bytes", "letters", "code",
    "at", "at-place", "last", "popped", "cut", "cut-place", "counted-part", "counted-place", "taken", "dropped",
    "taken-last", "dropped-last", "unique", "flat", "compact", "alike", "filled", "range", "range-to",
    "length", "integer", "octal-read", "sum", "power", "truth", "hex-text", "octal-text", "binary-text", "base",
    "stem", "suffix", "suffixed", "beside", "normal", "root", "subpath", "path-parts", "address", "supernet",
    "packed", "pattern", "replace-pattern", "by-pattern", "by-delimited", "replace-lua", "matched", "match-of",
    "match-lua", "halves", "halves-last", "partition", "partition-last", "before", "behind", "before-last",
    "behind-last", "place", "place-last", "begins", "ends", "holds", "equals", "parsed-path", "url-path", "url-decoded",
    "prefix-length", "linked", "common-path", "common-text", "split-last", "path-apart", "from-base", "network-last",
    "matched-front", "integer-text", "sides",
    "replace-once", "to-hex", "to-base64", "copied", "gathered", "sorted", "sorted-down", "least", "greatest",
]  # fmt: skip
Runs = Literal["command", "line", "words", "split", "rest", "code", "statement", "started", "file"]
RECEIVER: Final = -1  # the place of what a method is called on, among the places of arguments


class CallEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the calls of some names do.

    `of` are the places of the arguments that it is done to, `keywords` their names. `mode` and `flags` are the places
    of what says that a file is opened for writing, `inline_mode` that its name begins with that. `paths` says that a
    value counts where it is a path; `on` are words of which what it is called on must
    hold one, `unless` words of which it must hold none; `everything` are values that stand for all of a resource, and
    `empty` is the place of a condition that nothing must stand in; `bare` is a call that must have no arguments.
    `registry` says that the values are a key of the Windows registry, the name of a value in it and its data; where
    the key is not known, it is the `resource`.
    `hosts` says that the value is a URL or a host, whose resource is read from it.
    `always` says that nothing may be asked before the call in the loop that it stands in.
    `program` is the one whose words the arguments are, where `runs` says that they are a command.
    `says` are pieces of which one must stand in the arguments, in small letters and without blanks and quotes, `spared`
    those of which none may.
    """

    names: tuple[str, ...]
    does: Verb = "execute"
    resource: Resource | None = None
    scope: EffectScope = "one"
    runs: Runs | None = None
    program: str = ""
    of: tuple[int, ...] = ()
    keywords: tuple[str, ...] = ()
    mode: int | None = None
    flags: int | None = None
    inline_mode: bool = False
    paths: bool = False
    hosts: bool = False
    registry: bool = False
    on: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    everything: tuple[str, ...] = ()
    empty: int | None = None
    bare: bool = False
    says: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    always: bool = False


class Together(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a program does by several things that it says, whichever of its calls says each.

    `does` is an effect. All of `says` must stand in the text, and none of `unless`: patterns, or names of `flows`.
    """

    does: str
    says: tuple[str, ...]
    unless: tuple[str, ...] = ()


class CodeExample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program, and the effect that it must have."""

    code: str
    effect: str


class CodeExamples(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"passes": "pass"}):
    """Programs that must have an effect, and programs that have none worth a rule."""

    found: tuple[CodeExample, ...]
    passes: tuple[str, ...]


class Writing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a language is written that is read without a grammar.

    `comment` is what a remark begins with; `quotes` says that single quotes hold text; `dotted` that names have dots in
    them; `members` are signs before a member besides dots, `joins` those that put texts together. `fills` begin what is
    put into a text, `dollar` says that a name behind that sign is. `blocks` says that braces hold functions,
    `implied` is the parameter of one that names none; `named` that a colon stands behind the name of an argument;
    `commands` that back quotes hold command lines.
    """

    comment: Literal["//", "#", "--"] = "//"
    quotes: bool = False
    dotted: bool = False
    members: tuple[str, ...] = ()
    joins: tuple[str, ...] = ("+",)
    fills: tuple[str, ...] = ()
    dollar: bool = False
    blocks: bool = False
    implied: str = ""
    named: bool = False
    commands: bool = False


class CallFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file of calls; `places` are texts with the names, of calls or of members, that stand for each.

    `flows` are patterns by the name of what they show: where data comes from in a text, where it goes to.
    """

    about: str
    languages: tuple[CodeLanguage, ...]
    written: Writing | None = None
    values: Mapping[Makes, tuple[str, ...]]
    places: Mapping[str, tuple[str, ...]] = {}
    calls: tuple[CallEntry, ...] = ()
    flows: Mapping[str, tuple[str, ...]] = {}
    together: tuple[Together, ...] = ()
    examples: CodeExamples


# A mode in which what is opened is written: `open(path, "w")`.
_WRITE_MODE: Final = Lazy(r",\s*(?:mode\s*=\s*)?[\"'][wax][bt+]{0,2}[\"']\s*[,)]")


def _spelled(names: tuple[str, ...]) -> list[str]:
    """Names in small letters, those of a module that is loaded in two ways after both: `fs.promises`, `fs/promises`."""
    plain = [name.lower() for name in names]
    further = [name.replace("fs.promises.", "fs/promises.", 1) for name in plain if name.startswith("fs.promises.")]
    return list(dict.fromkeys([*plain, *further]))


class KnownCalls:
    """The calls of one language, by their names in small letters."""

    def __init__(self, files: tuple[CallFile, ...]) -> None:
        self.does: dict[str, tuple[CallEntry, ...]] = {}
        self.makes: dict[str, Makes] = {}
        self.places: dict[str, str] = {}
        for file in files:
            for entry in file.calls:
                for name in _spelled(entry.names):
                    self.does[name] = (*self.does.get(name, ()), entry)
            for makes, names in file.values.items():
                self.makes.update(dict.fromkeys(_spelled(names), makes))
            for place, names in file.places.items():
                self.places.update(dict.fromkeys(map(str.lower, names), place))
        self.together = tuple(one for file in files for one in file.together)
        self.written = next((file.written for file in files if file.written is not None), None)
        # What a call ends with that is worth looking at: most calls of most programs are not.
        whole = self.does if self.written is not None and self.written.dotted else ()
        self.ends = frozenset((*whole, *(name.rpartition(".")[2].removeprefix("new ") for name in self.does)))

    @cached_property
    def _says(self) -> tuple[Mapping[str, int], Callable[[str], list[int]]]:
        """The patterns of what is told together, each by its place among them, and what finds them in one pass."""
        patterns = {said: None for one in self.together for said in (*one.says, *one.unless)}
        return {said: at for at, said in enumerate(patterns)}, one_of(*(flow(said) or said for said in patterns))

    def told_together(self, text: str) -> Iterator[tuple[Verb, Resource, EffectScope]]:
        """Return the effects of what a text says together, by patterns alone."""
        places, find = self._says
        found = set(find(text))
        for one in self.together:
            if found.issuperset(map(places.__getitem__, one.says)) and found.isdisjoint(
                map(places.__getitem__, one.unless)
            ):
                verb, resource, scope = one.does.split()
                yield cast("tuple[Verb, Resource, EffectScope]", (verb, resource, scope))

    def may_read(self, name: str, arguments: str) -> bool:
        """Whether a call may read a file that it names: it is not known to do something else with it."""
        told = self.does.get(name)
        return told is None or (any(one.does == "read" for one in told) and not _WRITE_MODE.search(arguments))


@cache
def flow(name: str) -> str:
    """The pattern of what shows in a text where data comes from or goes to; empty for a name that no file has."""
    return "|".join(f"(?:{pattern})" for file in builtin_calls() for pattern in file.flows.get(name, ()))


@cache
def calls_of(language: CodeLanguage) -> KnownCalls:
    """The calls that are known of a language."""
    return KnownCalls(tuple(file for file in builtin_calls() if language in file.languages))


@cache
def builtin_calls() -> tuple[CallFile, ...]:
    """Return every file of calls that ships with Aegis; raise as `load_calls` does."""
    files = load_calls(call_folder(), cache=default_cache_folder())
    if not files:  # without them every program would look harmless
        raise missing("data/calls")
    return files


def call_folder() -> Path:
    """Return the folder of the built-in calls; raise `ConfigError` where the installation lacks them."""
    return shipped_folder("data/calls")


def load_calls(folder: Path, *, cache: Path | None = None) -> tuple[CallFile, ...]:
    """Read every file of a folder; raise `ConfigError` for the first that is wrong."""
    return load_files(folder, "calls", Path(__file__), CallFile, _checked, cache=cache)


def _checked(name: str, text: str) -> CallFile:
    from aegis.detect.rules.load import parse  # YAML is read where nothing was kept

    value, _ = parse(text, name)
    try:
        file = convert(value, CallFile)
        for one in file.together:
            names_matched(one.does)
        return file
    except (msgspec.ValidationError, ValueError) as error:
        raise ConfigError((Problem(message=str(error), file=name),)) from error
