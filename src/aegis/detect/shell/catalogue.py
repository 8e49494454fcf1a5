"""What programs do, as data: `data/programs/*.yaml`, one file a family, each with examples that a test runs.

Analysers ask for the programs of a kind or with a member, and name those with a grammar of their own. Files are read
once a process; what was checked comes out of the compiled rules.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal, TypeVar

import msgspec
import re2

from aegis.core.effects import RESOURCES, SCOPES, VERBS
from aegis.core.json import T, convert, unpack
from aegis.core.patterns import Lazy
from aegis.core.shipped import missing, shipped_folder
from aegis.detect.rules.cache import default_cache_folder, load_cached, load_shipped, store_cached, written_as
from aegis.errors import ConfigError, Problem

ProgramLanguage = Literal[
    "shell", "python", "javascript", "php", "sql", "make", "cron", "applescript", "orders", "manifest", "other"
]
Words = tuple[str, ...]

# What a program can be said to be, and what follows from it.
KINDS: Final[dict[str, str]] = {
    "attack-tool": "breaks into systems or cracks secrets; starting it is a finding",
    "awk": "takes its program as the first operand",
    "captures": "prints what other programs and machines say over a network, or what a microphone or a camera takes in",
    "carrier": "carries files to a service, with words such as `cp` and `upload`",
    "cmdlet": "is a command of PowerShell, whose parameters may be abbreviated",
    "cloud": "administers a cloud or a cluster; what its options open to everyone is looked for",
    "connects": "prints what another host sends over a connection",
    "container": "starts containers, whose mounts and rights are looked at",
    "container-engine": "has the options of `docker run` and `docker exec`",
    "copier": "puts a file in the place of another",
    "defence": "watches or guards a machine, under its name as a service; the name may end in `*`",
    "deleter": "deletes its operands",
    "downloader": "writes what it fetches to the file that an option names",
    "dumper": "prints the whole of a database",
    "edits-in-place": "changes files where they stand, with `-i`",
    "elevates": "starts a command with the rights of another user",
    "encryptor": "encrypts files, so that deleting them afterwards is extortion",
    "eraser": "removes traces where its operands are histories or logs",
    "evaluates": "runs the text that it is given",
    "fed": "appends the words that it reads to a command, which it starts",
    "fetcher": "fetches from a host; is a sender as well",
    "guarded": "is a program of the system that only packages replace",
    "has-exec": "starts a command in a container by `exec`",
    "has-ssh": "starts a command on a machine by `ssh`",
    "host-option": "takes a host by `-h`, which therefore asks for no help",
    "http-client": "asks a host for a page by its address",
    "interpreter": "runs the code that it reads from a pipe",
    "keeps-backups": "is the service of a machine's backups or snapshots",
    "joins-by-commas": "takes a command line whose words are joined by commas",
    "joins-letters": "takes a program behind letters that are put together, such as `-lne`",
    "launcher": "starts a tool of the project that is named among its first words",
    "lister": "prints the names of files",
    "listener": "connects a program to the network",
    "miner": "mines for others; starting it is a finding; the name may end in `*`",
    "moves-programs": "can run, start, copy or fetch a program; what it writes and reads is followed",
    "migration": "builds and takes away the tables of an application",
    "namer": "names a file without giving away what is in it",
    "names-shell": "may name a shell without starting it",
    "network": "talks to other hosts",
    "packet-filter": "has chains whose policy can be opened",
    "partitioner": "writes partitions or file systems to a device",
    "reader": "gives away what is in its operands",
    "reads-lines": "runs the lines of its input, and has no option for a script",
    "resolver": "looks up names, which can carry data away",
    "runs-file": "starts the file that is its operand",
    "runs-input": "runs each line that it reads from a pipe",
    "runs-list": "runs the commands of the file that is its operand",
    "scripted": "has a little language that can start commands, such as `:!` of an editor",
    "sender": "sends what it is given to a host; is a network program as well",
    "service-manager": "stops and disables services",
    "sets-rights": "says who may do what with a file",
    "shell": "is a command shell; is an interpreter as well",
    "shows": "prints its words and runs none of them",
    "silent": "prints nothing",
    "starts-given": "has the work of starting what it is given, wherever that lies",
    "starts-shell": "starts the shell that is its last word",
    "takes-folders": "takes whole folders, so that a folder of secrets is read by it",
    "takes-settings": "has an option whose value is a setting, such as `-o ProxyCommand=...`",
    "to-shell": "is kept as it stands where a bare shell is all that it starts",
    "tunnel": "carries connections through a network that does not let them pass",
    "writer": "writes files",
}
# What a file may say of a command line; how a signal is judged is said by the rules of the folder `rules/shell`.
SIGNALS: Final = frozenset({
    "shell.destroy", "shell.dumps-secret", "shell.grants", "shell.hides-traces", "shell.infrastructure", "shell.kernel",
    "shell.persists", "shell.privilege", "shell.publishes", "shell.weakens",
})  # fmt: skip
OPERANDS: Final = frozenset({"key", "path", "preference"})  # resources that operands decide
EFFECTS: Final = frozenset({"exec", "network", "read", "write"})
LEAST_EXAMPLES: Final = 2  # of each kind, in every file


class _Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a file, of which every member is known."""


class Deed(_Member, frozen=True, kw_only=True):
    """Words that mean `signal` where all of one entry of `words` stand in a command, in any order, in any case.

    What only says what it would do (`--dry-run`) does nothing. `letters` also takes joined options apart (`-rf` is
    `-r` and `-f`) and lets a call for help pass; `parts` also takes paths apart (`repos/a/keys` has the word `keys`).
    """

    signal: str
    words: Words
    unless: Words = ()
    read: Literal["letters", "parts", "plain"] = "letters"


class Sign(_Member, frozen=True, kw_only=True):
    """Words of a local program that mean `signal`: one of `any`, of `first` at the start, of `pair` side by side.

    A word may also end with one of `ends` or contain one of `contains`. One of `requires` must stand there besides.
    """

    signal: str
    any: Words = ()
    first: Words = ()
    pair: Words = ()
    ends: Words = ()
    contains: Words = ()
    requires: Words = ()
    ignore_case: bool = False


class InterpreterOptions(_Member, frozen=True, kw_only=True):
    """How an interpreter is given its program, by its options: written out, as a file, as the name of a module.

    Options of `value` take a value that is no program; with one of `check` it only says whether it could run what it
    reads. Where `operand` is false, no operand is the file of one.
    """

    language: ProgramLanguage = "other"
    text: frozenset[str] = frozenset()
    file: frozenset[str] = frozenset()
    value: frozenset[str] = frozenset()
    module: frozenset[str] = frozenset()
    check: frozenset[str] = frozenset()
    operand: bool = True


class Prefix(_Member, frozen=True, kw_only=True):
    """That the words behind a program's options and so many operands are a command that it starts here."""

    operands: int = 0
    value: frozenset[str] = frozenset({"-n"})


class RemoteStart(_Member, frozen=True, kw_only=True):
    """That a program starts a command elsewhere: behind a word of `after`, or behind its options and its `operands`."""

    value: frozenset[str] = frozenset()
    operands: int | None = None
    after: frozenset[str] = frozenset()


class Prints(_Member, frozen=True, kw_only=True):
    """That a program prints what it reads; `pattern` says that its first operand is no file."""

    value: frozenset[str] = frozenset()
    pattern: bool = False


class OptionWords(_Member, frozen=True, kw_only=True):
    """Options that say more than how to work.

    The value of a `command` option is a command line, of a `loads` option a file that is run or read as settings, of
    a `library` option code that is loaded, of a `statement` option SQL, of a `code` option a program. An `unsafe` one
    lets documents start commands.
    """

    command: Words = ()
    loads: Words = ()
    library: Words = ()
    statement: Words = ()
    code: Words = ()
    unsafe: Words = ()


class Use(_Member, frozen=True, kw_only=True):
    """What a program does where all words of one entry of `when` hold, and those of no entry of `unless`.

    `effect` is a verb and a resource of `core.effects`, perhaps a scope. Instead of a resource it names what the
    operands are: `path`, `preference`, or `key` of a registry; `of` says which words those are, `among` which of their
    resources count. With `of`, `service` and `process` are what the name of one says. Words are in small letters, but
    for options behind `=`: `=-T`, or what begins so.
    """

    effect: str
    when: Words = ()
    unless: Words = ()
    of: Words = ()
    among: Words = ()


class LinePattern(_Member, frozen=True, kw_only=True):
    """Where a command line stands among a program's words, and what reads it.

    It is the value of an option of `after`, everything behind a word of `rest`, or the words from operand `start` on.
    """

    shell: Literal["cmd", "powershell", "bash"] = "cmd"
    after: Words = ()
    rest: Words = ()
    start: int = 0
    unless: Words = ()


class KnownProgram(_Member, frozen=True, kw_only=True):
    """One program under all of its names, and what is known of it.

    `secrets` are words that all stand in a command which prints what a store of secrets holds, `foreign` in one which
    prints what somebody else wrote, and `installers` the places, host and path, where its makers keep what installs it.
    `aliases` are the names that PowerShell alone has for it, and `variables` what settings of the environment add to
    its words: `$` is the value, `*` the rest of the name.
    """

    names: Words
    kinds: Words = ()
    deeds: tuple[Deed, ...] = ()
    signs: tuple[Sign, ...] = ()
    secrets: Words = ()
    foreign: Words = ()
    installers: Words = ()
    runs: InterpreterOptions | None = None
    prefix: Prefix | None = None
    elsewhere: RemoteStart | None = None
    prints: Prints | None = None
    options: OptionWords = OptionWords()
    aliases: Words = ()
    variables: dict[str, str] = {}
    does: tuple[Use, ...] = ()
    lines: tuple[LinePattern, ...] = ()


class CommandExample(_Member, frozen=True, kw_only=True):
    """A command line, with the signal or the effect (`does`, of `core.effects`) that it has in its `shell`."""

    command: str
    signal: str = ""
    effect: str = ""
    does: str = ""
    shell: Literal["bash", "cmd", "powershell"] = "bash"


class Family(_Member, frozen=True, kw_only=True):
    """One file: what it is about, its programs, and its examples."""

    about: str
    found: tuple[CommandExample, ...]
    passes: Words
    programs: tuple[KnownProgram, ...]


class _Examples(_Member, frozen=True, kw_only=True):
    found: tuple[CommandExample, ...]
    passes: Words = msgspec.field(name="pass")


_Part = TypeVar("_Part")
_FOUND_AT: Final = Lazy(r"^(.*?)(?: - at `\$(.*)`)?$")
_STEP: Final = Lazy(r"\.(\w+)|\[(\d+)\]")
_NAME: Final = Lazy(r"^[^\sA-Z/*]+\*?$")
_CAPITALS: Final = Lazy(r"[A-Z]")
_LETTER: Final = Lazy(r"^-[A-Za-z]$")
_BY_PATTERN: Final = frozenset({"defence", "miner"})


def of_kind(kind: str) -> frozenset[str]:
    """Return the names of all programs of a kind."""
    if kind not in KINDS:
        raise KeyError(kind)
    return frozenset(name for name, program in builtin_programs().items() if kind in program.kinds)


def pattern_of(kind: str) -> str:
    """Return a pattern of the names of a kind, for kinds whose names may end in `*`."""
    return "|".join(re2.escape(name).replace(r"\*", r"\S*") for name in sorted(of_kind(kind)))


def members(member: str, kind: type[_Part]) -> dict[str, _Part]:
    """Return one member of every program that has it, by the program's names."""
    every = builtin_programs().items()
    return {name: value for name, one in every if isinstance(value := getattr(one, member), kind) and value}


def options(member: str) -> dict[str, Words]:
    """Return the options of one meaning of every program that has any, by the program's names."""
    return {name: words for name, one in builtin_programs().items() if (words := getattr(one.options, member))}


@cache
def uses() -> Mapping[str, tuple[Use, ...]]:
    """Return what programs do to resources, by their names."""
    return {name: program.does for name, program in builtin_programs().items() if program.does}


@cache
def command_lines() -> Mapping[str, tuple[LinePattern, ...]]:
    """Return where command lines stand among the words of programs, by their names."""
    return {name: program.lines for name, program in builtin_programs().items() if program.lines}


@cache
def powershell_aliases() -> Mapping[str, str]:
    """Return the names that PowerShell has for programs, with the name of each program."""
    return {alias: program.names[0] for program in builtin_programs().values() for alias in program.aliases}


@cache
def builtin_programs() -> Mapping[str, KnownProgram]:
    """Return every program that Aegis knows, by its names.

    Raises `ConfigError` where a file is wrong or the installation lacks them.
    """
    programs = load(program_folder(), cache=default_cache_folder())
    if not programs:  # without them every command would look harmless
        raise missing("data/programs")
    known: dict[str, KnownProgram] = {}
    for name, program in [(name, one) for one in programs for name in one.names]:
        other = known.get(name, KnownProgram(names=()))
        whole = program if _only_does(other) else other  # of two, one says only what the program does
        known[name] = msgspec.structs.replace(whole, does=other.does + program.does)
    return known


def _only_does(program: KnownProgram) -> bool:
    """Whether an entry says only what programs do to resources, which files about a kind of deed add to others."""
    return program == KnownProgram(names=program.names, does=program.does)


def program_folder() -> Path:
    """Return the folder of the built-in programs; raise `ConfigError` where the installation lacks them."""
    return shipped_folder("data/programs")


# Files into values


def load(folder: Path, *, cache: Path | None = None) -> tuple[KnownProgram, ...]:
    """Read every program of a folder; `cache` is a private folder for what was checked before.

    Raises `ConfigError` with one problem for each thing that is wrong, with its file and line.
    """
    files = [(path.name, path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))]
    identity = ("programs", written_as(Path(__file__)), *(word for file in files for word in file))
    body = None if cache is None else load_cached(cache, identity) or load_shipped(identity)
    if body is not None:
        with contextlib.suppress(msgspec.DecodeError):  # of another version: read anew
            return unpack(body, tuple[KnownProgram, ...])
    programs = tuple(program for family in families(files) for program in family.programs)
    if cache is not None:
        store_cached(cache, identity, msgspec.msgpack.encode(programs))
    return programs


def families(files: Sequence[tuple[str, str]]) -> list[Family]:
    """Check files, given by name and text; raise `ConfigError` with everything that is wrong in them."""
    problems: list[Problem] = []
    found: list[Family] = []
    taken: dict[str, str] = {}
    for file, text in files:
        reading = _Reading(file, problems)
        family = reading.family(text, taken)
        if family is not None:
            found.append(family)
    if problems:
        raise ConfigError(tuple(problems))
    return found


class _Reading:
    """One file on its way; what is wrong is added to `problems`."""

    def __init__(self, file: str, problems: list[Problem]):
        self._file = file
        self._problems = problems
        self._lines: dict[str, int] = {}

    def family(self, text: str, taken: dict[str, str]) -> Family | None:
        from aegis.detect.rules.load import parse  # YAML is read where nothing was kept

        before = len(self._problems)
        try:
            value, self._lines = parse(text, self._file)
        except ConfigError as error:
            self._problems.extend(error.problems)
            return None
        if not isinstance(value, dict) or value.keys() != {"about", "examples", "programs"}:
            self._bad("a file holds `about`, `examples` and `programs`", "")
            return None
        about, entries = value["about"], value["programs"]
        if not isinstance(about, str) or not isinstance(entries, list) or not entries:
            self._bad("`about` must be text, and `programs` a list", "")
            return None
        programs: list[KnownProgram] = []
        for at, entry in enumerate(entries):
            program = self._convert(entry, KnownProgram, f"/programs/{at}")
            if program is not None:
                self._check(program, f"/programs/{at}", taken)
                programs.append(program)
        examples = self._convert(value["examples"], _Examples, "/examples")
        if examples is None:
            return None
        self._check_examples(examples)
        if len(self._problems) > before:
            return None
        return Family(about=about, found=examples.found, passes=examples.passes, programs=tuple(programs))

    def _convert(self, value: object, to: type[T], pointer: str) -> T | None:
        try:
            return convert(value, to)
        except msgspec.ValidationError as error:
            match = _FOUND_AT.match(str(error))
            steps = _STEP.findall(match.group(2) or "") if match is not None else []
            where = pointer + "".join(f"/{name or number}" for name, number in steps)
            message = str(error) if match is None else match.group(1)
            self._bad(message[:1].lower() + message[1:], where)
            return None

    def _check(self, program: KnownProgram, pointer: str, taken: dict[str, str]) -> None:
        for name in program.names:
            if _NAME.match(name) is None:
                self._bad(f"`{name}` is no name of a program in small letters", f"{pointer}/names")
            if name.endswith("*") and not set(program.kinds) <= _BY_PATTERN:
                self._bad("only names of a defence or a miner end in `*`", f"{pointer}/names")
            if _only_does(program):
                continue  # what is added to what another file says
            if name in taken:
                self._bad(f"`{name}` is described in `{taken[name]}` already", f"{pointer}/names")
            taken[name] = self._file
        if not program.names or program == KnownProgram(names=program.names):
            self._bad("a program has `names` and something that is known of it", pointer)
        self._check_uses(program, pointer)
        for at, kind in enumerate(program.kinds):
            if kind not in KINDS:
                self._bad(f"`{kind}` is not a kind", f"{pointer}/kinds/{at}", hint=f"one of {', '.join(KINDS)}")
        for at, deed in enumerate(program.deeds):
            self._check_signal(deed.signal, f"{pointer}/deeds/{at}/signal")
            self._check_words(deed, f"{pointer}/deeds/{at}/words")
        for at, sign in enumerate(program.signs):
            self._check_signal(sign.signal, f"{pointer}/signs/{at}/signal")
            if not (sign.any or sign.first or sign.pair or sign.ends or sign.contains):
                self._bad("a sign names the words that it looks for", f"{pointer}/signs/{at}")
            if any(len(pair.split()) != 2 for pair in sign.pair):
                self._bad("a `pair` is two words", f"{pointer}/signs/{at}/pair")

    def _check_uses(self, program: KnownProgram, pointer: str) -> None:
        for at, use in enumerate(program.does):
            verb, _, rest = use.effect.partition(" ")
            resource, _, scope = rest.partition(" ")
            known = resource in (*RESOURCES, *OPERANDS) and set(use.among) <= set(RESOURCES)
            if verb not in VERBS or not known or scope not in ("", *SCOPES):
                self._bad(f"`{use.effect}` is no effect", f"{pointer}/does/{at}/effect")
            for words in (*use.when, *use.unless):
                if not words.strip() or any(_CAPITALS.search(word) for word in words.split() if word[:2] != "=-"):
                    self._bad(f"`{words}` is compared in small letters", f"{pointer}/does/{at}")
        for at, line in enumerate(program.lines):
            if not (line.after or line.rest or line.start):
                self._bad("a line names where it stands", f"{pointer}/lines/{at}")

    def _check_signal(self, signal: str, pointer: str) -> None:
        if signal not in SIGNALS:
            self._bad(f"`{signal}` is not a signal", pointer, hint=f"one of {', '.join(sorted(SIGNALS))}")

    def _check_words(self, deed: Deed, pointer: str) -> None:
        if not deed.words:
            self._bad("a deed names its words", pointer)
        for at, words in enumerate(deed.words):
            for word in words.split():
                if _CAPITALS.search(word) and not (deed.read == "letters" and _LETTER.match(word)):
                    self._bad(f"`{word}` is compared in small letters", f"{pointer}/{at}")

    def _check_examples(self, examples: _Examples) -> None:
        for kind, given in (("found", examples.found), ("pass", examples.passes)):
            if len(given) < LEAST_EXAMPLES:
                self._bad(f"a file needs at least {LEAST_EXAMPLES} `{kind}` examples", f"/examples/{kind}")
        for at, example in enumerate(examples.found):
            if bool(example.signal) + bool(example.effect) + bool(example.does) != 1:
                self._bad("an example names a `signal` or an `effect`", f"/examples/found/{at}")
            if example.effect and example.effect not in EFFECTS:
                self._bad(f"`{example.effect}` is none of {', '.join(sorted(EFFECTS))}", f"/examples/found/{at}/effect")

    def _bad(self, message: str, pointer: str, hint: str = "") -> None:
        line = self._lines.get(pointer)
        while line is None and pointer:
            pointer = pointer.rpartition("/")[0]
            line = self._lines.get(pointer)
        self._problems.append(Problem(message=message, file=self._file, line=line or 0, pointer=pointer, hint=hint))
