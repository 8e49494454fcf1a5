"""What a shell text does: its commands after parsing, not the words that it is written with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container
from functools import lru_cache
from itertools import pairwise, takewhile
from typing import Any, Final

from msgspec import Struct, field

from aegis.core.effects import ResourceEffect
from aegis.detect.facts import LEAST, Effort, RanCommand
from aegis.detect.files import EMPTY, UNKNOWN, FileFlow, Files, Written
from aegis.detect.hosts import asks_metadata
from aegis.detect.operands import located, plain, plain_word, runs, taken_away
from aegis.detect.paths import is_account_file, is_secret_file, is_secret_place, is_settings_file, is_system_secret
from aegis.detect.resources import kept_at
from aegis.detect.shell.catalogue import command_lines, of_kind, uses
from aegis.detect.shell.destroy import SIGNAL as BREAKS
from aegis.detect.shell.destroy import (
    breaks,
    breaks_file,
    destroys,
    feeds_deleter,
    finds,
    is_fork_bomb,
    loads,
    locks_away,
    loops_over_root,
    opened,
    sets_permissions,
    where_found,
    writes_device,
)
from aegis.detect.shell.expansions import may_compute
from aegis.detect.shell.feeds import Feeds
from aegis.detect.shell.flow import (
    asks_with_output,
    carried,
    dropped,
    environment_sent,
    heeded,
    labels,
    pipeline,
    searches_keys,
    staged,
    substitutions,
    uploaded,
)
from aegis.detect.shell.handed import cmd_script, inner_lines, powershell_script
from aegis.detect.shell.heredocs import Extracted, extracted, restored
from aegis.detect.shell.known import KnownFacts
from aegis.detect.shell.programs import code_given, moves_programs, started
from aegis.detect.shell.services import named_effects, service_deed, stops_found, sweeps
from aegis.detect.shell.starts import (
    PREFIXED,
    STARTS_GIVEN,
    helpers,
    in_odd_place,
    inner_spawn,
    interposed,
    relayed,
    replaces,
    spawned,
    unwrapped,
)
from aegis.detect.shell.tamper import grants, tampering, tampering_write, written
from aegis.detect.shell.tree import MAX_SHELL, Command, Shell, parse_shell
from aegis.detect.shell.unquote import expanded_words, with_variables
from aegis.detect.shell.uses import effects_of
from aegis.detect.shell.variables import told
from aegis.detect.shell.words import (
    DELETERS,
    LOOSE_PLACES,
    NAMERS,
    NETWORK,
    READERS,
    SENDERS,
    SHELLS,
    WRITERS,
    carries,
    no_files,
    posted_file,
    statements,
    without_values,
)

MAX_DEPTH: Final = 8  # scripts inside arguments that are parsed in turn
_MOST_SCRIPTS: Final = 64
_SHOWN: Final = 80
_SHORT: Final = 256  # characters of a command, with its pipeline, that is remembered
_STARTS_OTHERS: Final = frozenset({"find", "xargs", "parallel"})
# Signals of what cannot be undone, though it need not be an attack.
_FINAL: Final = frozenset({"shell.destroy", "shell.delete-all", "shell.infrastructure", "shell.publishes", BREAKS})
_FLOWS: Final = (">", "$(", "<(", "`", "+=", "]=", "]}", "=$'", "=(")


class ShellFacts(Struct, kw_only=True):
    """What one shell text does; `signals` are stable names with the piece that shows them.

    `programs` are pieces of code in other languages that it runs, each with the name of the interpreter, and
    `statements` the SQL that it hands to a database. `ran` are its commands, in plain words. `runs` are the files that
    it runs as programs, `written` those that it writes with what it writes to them, and `output` is what it prints.
    `read` are the programs that it runs which stand in no argument as they are. `effects` are what it does to which
    resource; whoever reads the facts adds the argument that the text stands in. `foreign` are scripts for the shells of
    Windows, each with the name of its shell.
    """

    too_long: bool = False
    network: bool = False
    writes: bool = False
    irreversible: bool = False
    signals: list[tuple[str, str]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    programs: list[tuple[str, str]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)
    ran: list[RanCommand] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    output: FileFlow = EMPTY
    read: list[str] = field(default_factory=list)
    effects: list[ResourceEffect] = field(default_factory=list)
    foreign: list[tuple[str, str]] = field(default_factory=list)
    effort: Effort = field(default_factory=Effort)

    def may_read(self, units: int) -> bool:
        """Whether `units` of effort are left; where they are not, something stays unread."""
        if self.effort.take(units):
            return True
        self.too_long = True
        return False

    def add(self, name: str, evidence: str) -> None:
        self.signals.append((name, evidence[:_SHOWN]))
        self.irreversible = self.irreversible or name in _FINAL

    def absorb(self, inner: ShellFacts | KnownFacts) -> None:
        self.signals.extend(inner.signals)
        self.programs.extend(inner.programs)
        self.statements.extend(inner.statements)
        self.ran.extend(inner.ran)
        self.runs.extend(inner.runs)
        self.written.extend(inner.written)
        self.read.extend(inner.read)
        self.effects.extend(inner.effects)
        self.foreign.extend(inner.foreign)
        self.network |= inner.network
        self.writes |= inner.writes
        self.irreversible |= inner.irreversible
        self.too_long |= inner.too_long


def analyse_shell(
    text: str,
    depth: int = 0,
    effort: Effort | None = None,
    *,
    stdin: FileFlow | None = None,
    files: Files | None = None,
) -> ShellFacts:
    """The facts of one shell text; never raises, and reads at most `MAX_SHELL` characters, as far as `effort` goes.

    `stdin` is what the text itself reads, and `files` what is known of files that were written before, to which its
    own are added.
    """
    facts = ShellFacts(effort=effort or Effort())
    if len(text) > MAX_SHELL or not facts.may_read(len(text)):
        facts.too_long = True
        return facts
    extract = extracted(text)
    text = expanded_words(extract.text)
    shell = parse_shell(text, facts.effort)
    facts.too_long = shell.cut
    for command in shell.commands:  # what starts another program is one itself
        if command.name in _KNOWN and command.name in PREFIXED:
            _uses(command.name, command, facts)
    commands = without_values([plain(command) for command in told(map(unwrapped, shell.commands))])
    if stdin is not None:
        commands = [command._replace(fed=True) for command in commands]
    pipes: dict[int, list[Command]] = defaultdict(list)
    for command in commands:
        if command.pipe:
            pipes[command.pipe].append(command)
        _add_command(command, facts, depth)
    for stages in (*pipes.values(), *staged(commands, shell.writes)):
        facts.signals.extend(pipeline(stages))
        away = carried(stages)
        if away is not None:
            facts.effects.append(away)
        if feeds_deleter(stages):
            facts.add("shell.destroy", stages[-1].pipeline)
    facts.ran.extend(runs(commands))
    for command in (*located(commands), *taken_away(commands)):
        _add_command(command, facts, depth)
    facts.signals.extend((*substitutions(commands), *dropped(commands), *labels(commands)))
    facts.signals.extend(environment_sent(text, commands))
    facts.effects.extend((*heeded(commands), *uploaded(commands)))
    facts.effects.extend(ResourceEffect(*did, "", text[:_SHOWN]) for did in (*sweeps(commands), *stops_found(commands)))
    if locked := locks_away(commands):
        facts.effects.append(ResourceEffect("encrypt", "home", "many", (), "", locked[:_SHOWN]))
    if searches_keys(text, commands):
        facts.effects.append(ResourceEffect("scan", "credential", "one", (), "", text[:_SHOWN]))
    for target, source in ((plain_word(target), source) for target, source in shell.writes):
        facts.writes = facts.writes or not target.startswith("/dev/")
        judge_write(target, restored(source, extract.given), facts)
    for source in shell.reads:
        _add_command(Command("cat", (plain_word(source),), f"cat {source}", 0, 0, False), facts, MAX_DEPTH)
    if is_fork_bomb(text) or loops_over_root(text, commands):
        facts.add("shell.destroy", text)
    done: Container[str] = ()
    # Most texts neither write a file nor run a program that could come from elsewhere.
    follows = any(sign in text for sign in _FLOWS) or may_compute(text)
    if depth or stdin is not None or follows or any(map(moves_programs, commands)):
        done = _follow(shell, extract, facts, depth, stdin, Files() if files is None else files)
    given = with_variables(text)
    if given is not None:
        facts.scripts.append(given)
    scripts = [script for script in dict.fromkeys(facts.scripts) if script != text and script not in done]
    if depth == MAX_DEPTH or len(scripts) > _MOST_SCRIPTS:
        facts.too_long |= bool(scripts)  # what is not read is not harmless
        return facts
    for script in scripts:
        facts.absorb(analyse_shell(script, depth + 1, facts.effort))
    return facts


def _follow(
    shell: Shell, extract: Extracted, facts: ShellFacts, depth: int, stdin: FileFlow | None, files: Files
) -> dict[str, FileFlow]:
    """Read what reaches interpreters by pipes, files and substitutions; the scripts that did, with their output."""
    done: dict[str, FileFlow] = {extract.text: UNKNOWN}

    def run(script: str, given: FileFlow | None) -> FileFlow:
        known = done.get(script)
        if known is not None and given is None:
            return known
        if depth == MAX_DEPTH or len(done) > _MOST_SCRIPTS:
            facts.too_long = facts.too_long or bool(script.strip())
            return UNKNOWN
        done[script] = UNKNOWN
        inner = analyse_shell(script, depth + 1, facts.effort, stdin=given, files=files)
        facts.absorb(inner)
        done[script] = inner.output
        return inner.output

    feeds = Feeds(extract.given, files, facts.effort, run)
    if shell.units:
        feeds.units(shell.units, stdin)
    else:
        feeds.commands(shell.commands, stdin)
    fed = feeds.fed
    facts.output = fed.output
    facts.runs.extend(fed.runs)
    facts.written.extend(fed.written)
    facts.read.extend(fed.read)
    facts.effects.extend(fed.effects)
    facts.programs.extend(program for program in fed.programs if program not in facts.programs)
    facts.statements.extend(statement for statement in fed.statements if statement not in facts.statements)
    facts.too_long |= fed.unread
    for table in fed.tables:
        judge_write("crontab", table, facts)
    for one in fed.written:
        if one.flow.text:
            judge_write(one.path, one.flow.text, facts)
    return done


def _add_command(command: Command, facts: ShellFacts, depth: int) -> None:
    """Add what a simple command does; the same short ones come in call after call, and are read once."""
    if len(command.text) + len(command.pipeline) > _SHORT or command.name.lower() in _STARTS_OTHERS:
        judge_command(command, facts, depth, known=True)
    else:
        known = _known_command(command, depth)
        facts.absorb(known)
        facts.scripts.extend(known.scripts)


@lru_cache(maxsize=2_048)
def _known_command(command: Command, depth: int) -> KnownFacts:
    """What a command does that costs no effort to read."""
    facts = ShellFacts()
    judge_command(command, facts, depth, known=True)
    kept: dict[str, Any] = {name: getattr(facts, name) for name in KnownFacts.__struct_fields__}
    kept |= {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return KnownFacts(**kept)


def judge_command(command: Command, facts: ShellFacts, depth: int = MAX_DEPTH, *, known: bool = False) -> None:
    """Add what a simple command does; one that is not `known` is run by another shell than this one."""
    name = command.name.lower()
    if known and name in _KNOWN:
        _uses(name, command, facts)
    facts.effects.extend(ResourceEffect(*did, "", command.text[:_SHOWN]) for did in named_effects(command))
    facts.network = facts.network or name in NETWORK
    if (name in NETWORK or name in _CLIENTS) and any(map(asks_metadata, command.args)):
        facts.add("host.metadata", command.text)
    facts.writes = facts.writes or name in WRITERS or name in DELETERS
    for signal in destroys(command):
        facts.writes = True
        facts.add(signal, command.text)
    if name in _STARTS_OTHERS:
        _starts_others(command, facts, depth)
    elif name in _SETS_RIGHTS:
        facts.writes = True
        for signal in sets_permissions(command):
            facts.add(signal, command.text)
        facts.effects.extend(ResourceEffect(*did, "", command.text[:_SHOWN]) for did in opened(command))
    elif name in {"tee", "cp", "mv"} and command.args:
        for target in command.args if name == "tee" else command.args[-1:]:
            judge_write(target, command.pipeline, facts)
    for signal, evidence in tampering(command):
        facts.add(signal, evidence)
    if broken := breaks(command):
        facts.writes = True
        facts.add(broken, command.text)
    deed = service_deed(command) or grants(command)
    if deed:
        facts.writes = facts.network = True
        facts.add(deed, command.text)
    if replaced := replaces(command):
        facts.writes = True
        facts.add("shell.persists", replaced)
    if loaded := loads(command):
        facts.add("shell.interposes", loaded)
    if asks_with_output(command):
        facts.network = True
        facts.add("shell.sends-secret", command.text)
    facts.statements.extend(statements(command))
    if name in _OF_WINDOWS:
        if known:
            _hands(command, _OF_WINDOWS[name], facts)
    elif name in SHELLS or name in {"eval", "su", "runuser"}:
        _script(command, facts)
    facts.programs.extend(code_given(command))
    for helper in helpers(command):
        facts.scripts.append(helper)
        if helper.startswith(LOOSE_PLACES) or (name not in STARTS_GIVEN and in_odd_place(helper)):
            facts.add("shell.interposes", helper)
    for line in relayed(command) if known else ():
        facts.scripts.append(line)
        facts.foreign.append(("cmd", line))  # for a machine that may be one of Windows
    if odd := interposed(command):
        facts.add("shell.interposes", odd)
    for signal, evidence in spawned(command, depth):
        facts.add(signal, evidence)
    _reads(command, facts)


_OF_WINDOWS: Final = {
    **dict.fromkeys(("powershell", "powershell.exe", "pwsh", "pwsh.exe"), "powershell"),
    **dict.fromkeys(("cmd", "cmd.exe"), "cmd"),
}  # fmt: skip
_KNOWN: Final = frozenset({*uses(), *command_lines()})


def _hands(command: Command, shell: str, facts: ShellFacts) -> None:
    """Take in the script that a command hands to a shell of Windows."""
    script, hidden = powershell_script(command.args) if shell == "powershell" else (cmd_script(command.args), False)
    facts.foreign += [(shell, script)] if script else []
    if hidden:
        facts.effects.append(ResourceEffect("execute", "code", "one", (), "", command.text[:_SHOWN]))


def _uses(name: str, command: Command, facts: ShellFacts) -> None:
    """Add what the entries of a program say that it does to which resource."""
    for did in effects_of(name, command.args):
        facts.effects.append(ResourceEffect(did.verb, did.resource, did.scope, did.values, "", command.text[:_SHOWN]))
    before = [f"{key}='{value}'" for key, value in command.variables if "'" not in value]
    for shell, line in inner_lines(name, command.args):
        if shell == "bash":
            facts.scripts.append(" ".join([*before, line]))
        else:
            facts.foreign.append((shell, line))


def _script(command: Command, facts: ShellFacts) -> None:
    """Scripts given as arguments: `sh -c ...`, `eval ...`."""
    args = command.args
    if command.name == "eval":
        facts.scripts.append(" ".join(args))
        return
    for at, arg in enumerate(args):
        if arg.startswith("-") and not arg.startswith("--") and "c" in arg and at + 1 < len(args):
            facts.scripts.append(args[at + 1])
            return


def _starts_others(command: Command, facts: ShellFacts, depth: int) -> None:
    """`find ... -exec`, `xargs` and `parallel` start another command with what they find."""
    args = command.args
    if command.name == "find":
        facts.writes = facts.writes or "-delete" in args
        for signal in finds(command):
            facts.add(signal, command.text)
        named = [value for option, value in pairwise(args) if option in _NAMES and is_secret_file(value)]
        for at, arg in enumerate(args):
            if arg in _PRINTS_TO:
                facts.writes = True
                judge_write("".join(args[at + 1 : at + 2]), " ".join(args[at + 2 : at + 3]), facts)
            if arg in {"-exec", "-execdir", "-ok", "-okdir"} and at + 1 < len(args):
                if not facts.may_read(len(args) - at):
                    return
                stop = next((end for end in range(at + 1, len(args)) if args[end] in {";", "+", "\\;"}), len(args))
                _inner(command, (*where_found(args[at + 1 : stop], args), *named), facts, depth)
        return
    rest = list(args)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in {"-I", "-n", "-L", "-P", "-d", "-s", "-E", "-a", "-j"} and rest and not rest[0].startswith("-"):
            rest.pop(0)
    line = " ".join(takewhile(lambda word: word[:3] != ":::", rest)) if command.name == "parallel" else ""
    if not _JOINING.isdisjoint(line):
        facts.scripts.append(line)
    _inner(command, tuple(rest), facts, depth)


_PRINTS_TO: Final = frozenset({"-fprint", "-fprint0", "-fprintf", "-fls"})
_JOINING: Final = frozenset("|;&<>$`")  # what makes of the words that `parallel` is given more than one command


def _inner(command: Command, words: tuple[str, ...], facts: ShellFacts, depth: int) -> None:
    if not words or not facts.may_read(LEAST + sum(map(len, words))):
        return
    name = words[0].rsplit("/", 1)[-1]
    inner = plain(unwrapped(Command(name, tuple(words[1:]), " ".join(words), 0, 0, True)))
    elsewhere = started(inner, inner.args)
    if elsewhere is not None and elsewhere.line:
        facts.scripts.append(elsewhere.line)
    if inner_spawn(inner):
        facts.add("shell.spawn", command.text)
    elif inner.name not in _STARTS_OTHERS:
        facts.ran.extend(runs([inner]))
        judge_command(inner, facts, depth, known=True)


def _given_away(word: str) -> bool:
    """Whether a word names secrets, as a file or as the folder that keeps them."""
    return is_secret_file(word) or is_secret_place(word)


def _reads(command: Command, facts: ShellFacts) -> None:
    name, args = command.name, command.args
    if name not in READERS:
        if name not in NAMERS and any(map(is_system_secret, args)):
            facts.add("shell.reads-secret", command.text)
        elif carries(name, args) and any(map(_given_away, args)):
            facts.add("shell.sends-secret", command.text)
        return
    if name == "tee":  # which writes its operands
        return
    operands = args[:-1] if name in _MOVERS and len(args) > 1 else args
    others = no_files(name, args)
    for at, arg in enumerate(operands):
        value = posted_file(name, arg)
        if at in others or not value or value.startswith("-"):
            continue
        if is_settings_file(value) and name not in SENDERS:
            edits = name in _EDITORS and any(option.startswith("-i") for option in args)
            if not edits and (name not in _MOVERS or args[-1].startswith(LOOSE_PLACES)):
                facts.add("shell.reads-settings", command.text)
            continue
        kept = kept_at(value)
        if kept is not None and not is_secret_file(value):
            facts.effects.append(ResourceEffect("read", kept, "one", (value,), "", command.text[:_SHOWN]))
            if kept == "browser-data":
                return
        posted = name in SENDERS and value != arg and is_account_file(value)
        if posted or is_secret_file(value) or (name in _TAKES_FOLDERS and is_secret_place(value)):
            facts.add("shell.reads-secret", command.text)
            if name in SENDERS:
                facts.add("shell.sends-secret", command.text)
            return


_EDITORS: Final = of_kind("edits-in-place")
_MOVERS: Final = frozenset({"cp", "install", "mv"})
_SETS_RIGHTS: Final = of_kind("sets-rights")
_CLIENTS: Final = of_kind("http-client")
_NAMES: Final = frozenset({"-name", "-iname", "-path", "-wholename"})
_TAKES_FOLDERS: Final = of_kind("takes-folders")


def judge_write(target: str, source: str, facts: ShellFacts) -> None:
    """What writing `source`, the text of the statement that writes, to `target` means."""
    if writes_device(target):
        facts.add("shell.destroy", target)
        return
    if breaks_file(target, source):
        facts.add(BREAKS, target)
        return
    trace = tampering_write(target, source)
    if trace is not None:
        facts.add(*trace)
        return
    signal, scripts = written(target, source)
    facts.scripts.extend(scripts)
    if signal:
        facts.add(signal, target)
