"""What a PowerShell or `cmd.exe` text does, and which shell a text is for.

Both readers give simple commands; what those do is judged as in any shell, by the entries of `data/programs`. A shell
that starts another one hands over its script, to a bounded depth.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from aegis.core.effects import EffectScope, Resource, ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.facts import LEAST, Effort
from aegis.detect.files import UNKNOWN, FileFlow, Files
from aegis.detect.line_files import of_registry
from aegis.detect.operands import runs
from aegis.detect.shell.batch import MAX_BATCH, parse_batch
from aegis.detect.shell.catalogue import builtin_programs, of_kind, powershell_aliases, uses
from aegis.detect.shell.destroy import locks_away
from aegis.detect.shell.doors import given_text, through_door
from aegis.detect.shell.flow import FETCHING, carried, fetched_file, gives_away, imitator, searches_keys, staged
from aegis.detect.shell.handed import (
    POWERSHELLS,
    TOLD,
    base_name,
    called_on_each,
    cmd_script,
    inner_lines,
    powershell_script,
    standing,
    started_line,
    told,
)
from aegis.detect.shell.keys import written_value
from aegis.detect.shell.powershell import MAX_POWERSHELL, parse_powershell
from aegis.detect.shell.programs import hands_on
from aegis.detect.shell.services import cmdlet_effects
from aegis.detect.shell.shell import ShellFacts, analyse_shell, judge_command
from aegis.detect.shell.starts import relayed
from aegis.detect.shell.tamper import attacks
from aegis.detect.shell.tree import Command
from aegis.detect.shell.uses import effects_of, is_cmdlet, is_of, placed_path
from aegis.detect.shell.words import is_share, is_stream, poses, program_name
from aegis.detect.tool_words import vocabulary

Dialect = Literal["bash", "powershell", "cmd"]
_DEEPEST: Final = 6  # scripts inside scripts that are read in turn
_MOST_SCRIPTS: Final = 48  # of one text
_EVIDENCE: Final = 200
_BASHES: Final = frozenset({"bash", "sh", "zsh", "dash", "wsl"})
_RUNS_LINE: Final = frozenset({".run", ".exec", ".create", ".executeshellcommand", ".shellexecute", ".renderlinelong"})
_SOCKETS: Final = (
    "net.sockets.tcp", "net.sockets.udpclient", "clientwebsocket", "networkinformation.ping", "io.pipes.named",
)  # fmt: skip
_HIDES_FROM: Final = ("amsiutils", "amsiinitfailed", "amsicontext", "amsiscanbuffer", "etweventwrite", "amsi.dll",
                      "complus_etwenabled", "psetwlogprovider", "cachedgrouppolicysettings")  # fmt: skip
_COMMON_TYPES: Final = POWERSHELLS | {"cmd", "command"}
_TOOLS_OF_ATTACK: Final = of_kind("attack-tool")


# Which shell a text is for


class Spoken(NamedTuple):
    """The shells that may read a text; `sure` says that the first one does, so that others need not understand it."""

    dialects: tuple[Dialect, ...]
    sure: bool


_BASH_SIGNS: Final = frozenset("$`'#{")
_WORDS: Final = Lazy(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_POWERSHELL_SIGNS: Final = Lazy(
    r"(?i)\$env:\w|\[[a-z][a-z0-9., =]*\]::|\s-join\b|\bnew-object\b[^\n]{0,60}\)\.|"
    r"(?:^|[\s;|({=&])(?:get|set|new|remove|add|invoke|start|stop|clear|disable|enable|out|"
    r"write|import|export|copy|move|rename|test|select|where|foreach|register|unregister|restart|resume|suspend|convertto|"
    r"convertfrom|receive|send|connect|enter|expand|compress|format|measure|update|uninstall|install|grant|revoke|mount|"
    r"dismount|reset|restore|checkpoint|limit|save|wait|debug|publish|find|initialize|optimize|repair)-[a-z]{2,40}\b|"
    r"\bnew-object\b|\biex\b|^\s*param\s*\(|(?:^|[;|]\s*)\$\w+\s*=\s"
)
_CMD_SIGNS: Final = Lazy(
    r"(?i)(?:^|[\s\"'=,])[a-z]:\\|\.exe\b|%[a-z_()0-9]{2,32}(?::[^%\n]{1,40})?%|\bhk(?:lm|cu|cr|u|ey_[a-z_]+)\\|"
    r"\\\\[a-z0-9.-]+\\|^\s*@echo off|"
    r"(?:^|[&|;\n(]\s*)(?:set\s+\"?\w+=|for\s+/[a-z]\s|call\s|diskpart\b|diskshadow\b|ntdsutil\b)|"
    r"(?:^|[&|;\n(]\s*)(?:reg|sc|net|net1|wmic|schtasks|vssadmin|wevtutil|bcdedit|netsh|taskkill|icacls|attrib|cmdkey|"
    r"certutil|bitsadmin|mshta|rundll32|regsvr32|diskshadow|wbadmin|fsutil|cipher|del|erase|rd|format|rmdir|takeown|"
    r"pnputil|mountvol|setx|dsacls|auditpol|dism|powershell|cscript|wscript|msiexec|forfiles|cmstp|installutil|mavinject|"
    r"runas|robocopy|xcopy)\s+[/\\\"a-z-]"
)
_SURELY_CMD: Final = Lazy(
    r"(?i)%[a-z_()0-9]{2,32}(?::[^%\n]{1,40})?%|(?:^|[\s\"'=])[a-z]:\\|\.exe\b|\s/[a-z?]\b|^\s*@?echo off|"
    r"^\s*rem\s|%%[~a-z#]|^\s*::|"
    r"^\s*(?:cl|link|lib|dumpbin|nmake|msbuild|set|setx|devcon|tracelog)\b"
)


@lru_cache(maxsize=1_024)
def _named(tool: str) -> Dialect:
    """The shell that the name of a tool says it is, which is that of Linux where it says nothing."""
    words = {word.lower() for word in _WORDS.findall(tool[-64:])}
    if "powershell" in tool.lower() or words & {"pwsh", "ps1"}:
        return "powershell"
    return "cmd" if words & {"cmd", "batch", "bat"} or "cmd.exe" in tool.lower() else "bash"


def spoken(tool: str, text: str) -> Spoken:
    """Return which shells may read a text, by the name of the tool that takes it and by how it is written."""
    named = _named(tool)
    if named == "powershell":
        return Spoken(("powershell",), True)
    if named == "cmd":
        sure = _SURELY_CMD.search(text) is not None
        if sure and _BASH_SIGNS.isdisjoint(text):
            return Spoken(("cmd",), True)  # a tool of this name may be a shell of Linux, but not for this text
        return Spoken(("cmd", "bash"), sure)
    found: list[Dialect] = ["bash"]
    if ("-" in text or "$" in text or "[" in text or "iex" in text) and _POWERSHELL_SIGNS.search(text):
        found.append("powershell")
    if _CMD_SIGNS.search(text):
        found.append("cmd")
    return Spoken(tuple(found), False)


def analyse_command(text: str, tool: str, effort: Effort, files: Files, depth: int = 0) -> ShellFacts:
    """Return what a command line does in every shell that may read it; never raises.

    `files` is what is known of files that were written before, to which its own are added. A reader for which the
    text was not written need not understand it. `depth` is 1 where a program starts the command.
    """
    if not text.isascii():  # half of a pair of surrogates is no character, and no pattern takes it
        text = text.encode("utf-8", "replace").decode("utf-8")
    read = spoken(tool, text)
    if "bash" in read.dialects:
        facts = analyse_shell(text, depth, effort, files=files)
        facts.too_long = facts.too_long and not (read.sure and read.dialects[0] != "bash")
        waiting = [(_dialect_of(language), given, True) for language, given in facts.foreign]
    else:
        facts = ShellFacts(effort=effort)
        waiting = []
    own = {"cmd": text if '"' in text or "bash" not in read.dialects else text.replace("'", '"'), "powershell": text}
    waiting += [(one, own[one], one == read.dialects[0]) for one in read.dialects if one in own]
    for dialect, script, is_meant in waiting[:_MOST_SCRIPTS]:
        inner = analyse_spoken(dialect, script, effort)
        inner.too_long = inner.too_long and is_meant
        facts.absorb(inner)
    facts.too_long = facts.too_long or len(waiting) > _MOST_SCRIPTS
    if host := imitator(text):
        facts.effects.append(ResourceEffect("send", "credential", "one", (host,), "", text[:_EVIDENCE]))
    return facts


def analyse_spoken(dialect: Dialect, text: str, effort: Effort, depth: int = 0) -> ShellFacts:
    """Return the facts of a text for one shell, with those of the scripts that it hands on; never raises."""
    facts = ShellFacts(effort=effort)
    waiting: list[tuple[Dialect, str, int]] = [(dialect, text, depth)]
    seen: set[tuple[Dialect, str]] = set()
    while waiting:
        spoken_in, script, level = waiting.pop(0)
        if (spoken_in, script) in seen or not script.strip():
            continue
        seen.add((spoken_in, script))
        if level > _DEEPEST or len(seen) > _MOST_SCRIPTS:
            facts.too_long = True
            break
        reading = _Reading(facts, effort)
        if spoken_in == "powershell":
            reading.powershell(script)
        elif spoken_in == "cmd":
            reading.batch(script)
        else:
            inner = analyse_shell(script, int(level > depth + 1), effort)
            facts.absorb(inner)
            reading.scripts += [(_dialect_of(language), given) for language, given in inner.foreign]
        waiting += [(language, given, level + 1) for language, given in reading.scripts]
    return facts


_WRITTEN_IN: Final[dict[str, Dialect]] = {"bat": "cmd", "cmd": "cmd", "ps1": "powershell"}
_ASKS_HOSTS: Final = ("://", "nslookup", "iwr ", "irm ", "invoke-webrequest", "downloadstring", "certutil ")
_IS_NAME: Final = Lazy(r"^\$[\w:.?]*$")  # a variable that nobody knows, as it is spelled
_PLAIN_HOST: Final = Lazy(r"(?i)http://[^l]|https://(?:\d{1,3}\.){3}\d{1,3}\b|https://\[|\$server|:\d{4,5}/")


# One of these stands in every command that an entry for any program speaks of.
_SIGNS_OF_ANY: Final = (
    "\\\\", "launcher", "prefix", "callback", "proxycommand", "localcommand", "subprocess-path", "comspec=", "|driver",
)  # fmt: skip
_CHANGES: Final = of_kind("writer") | of_kind("deleter")
_JUDGED: Final = frozenset(builtin_programs()) - _COMMON_TYPES - of_kind("cmdlet")
_CALLED: Final = frozenset({"at", "batch", "time", "timeout"})  # like programs of Unix, which they are not


def _dialect_of(language: str) -> Dialect:
    return "powershell" if language == "powershell" else "cmd" if language == "cmd" else "bash"


class _Reading:
    """One script: what its commands do goes to `facts`, what they hand to a shell to `scripts`."""

    def __init__(self, facts: ShellFacts, effort: Effort):
        self.facts = facts
        self.effort = effort
        self.scripts: list[tuple[Dialect, str]] = []
        self._aliases: dict[str, str] = {}
        self._sockets = False
        self._fetched: dict[str, bool] = {}
        self._handed: list[str] = []
        self._kept: dict[str, frozenset[str]] = {}  # files that were written, and where what they hold comes from
        self._started = ""  # the program of what is started last
        self._address = ""  # where something was fetched from last
        self._every: bool | None = False  # whether what was listed last is all that there is of a kind

    def powershell(self, text: str) -> None:
        script = parse_powershell(text, self.effort)
        if len(text) > MAX_POWERSHELL or script.cut:
            self.facts.too_long = True
        commands: list[Command] = []
        folder, files = "", dict[str, list[str]]()
        for place, command in enumerate(script.commands):
            if not command.name:
                continue
            if not self.facts.may_read(LEAST):
                break
            name = self._resolved(command)
            given, known = script.texts.get(place, ((), False))
            args = command.args
            of = dict(command.variables).get("of", "")
            if name in ("foreach-object", ".foreach", "%"):  # perhaps of a method, by its name
                name, args = called_on_each(name, args)
            if of and not of.startswith("$"):
                args = (*args, of)
            elif given and (name in _TAKES_PLACES or not known) and "\n" not in given[0]:
                args = args if name.startswith("where-") or hands_on(name) else (*args, *given)
            elif folder and name == "remove-item" and commands and commands[-1][:2] == ("get-childitem", ()):
                args = (*args, f"{folder}\\*")
            command = command._replace(name=name, args=args, variables=())
            commands.append(command)
            printed = "\n".join(given) if known else ""
            if name in _WRITES and (named := [arg for arg in args if arg[:1] != "-"]):
                files[base_name(named[0])] = [*(printed or named[-1]).splitlines()]
                self._kept[base_name(named[0])] = script.flows.get(place, _NO_KINDS)
            if self._told(command, printed.splitlines(), files):
                continue  # what it is told is known
            folder, command = standing(command, folder)
            kept = [self._kept.get(base_name(arg), _NO_KINDS) for arg in args if self._kept]
            self._one(command, script.flows.get(place, _NO_KINDS).union(*kept), printed)
        if searches_keys(text, commands):
            self._did("scan", "credential", "one", (), text)
        for target, place in script.writes:
            given, known = script.texts.get(place, ((), False))
            source = script.commands[place].text if script.commands else ""
            self._writes(target, source, FileFlow("\n".join(given)) if known else UNKNOWN)
        self._ran(commands)

    def batch(self, text: str) -> None:
        script = parse_batch(text, self.effort)
        if len(text) > MAX_BATCH or script.cut:
            self.facts.too_long = True
        self.scripts += [("cmd", inner) for inner in script.texts]
        commands: list[Command] = []
        fetches, folder = 0, ""
        for place, command in enumerate(script.commands):
            if not self.facts.may_read(LEAST):
                break
            if command.name in FETCHING:
                fetches = command.pipe
            kinds = _FETCHED if command.stage and command.pipe == fetches else _NO_KINDS
            printed = script.printed.get(place, [])
            commands.append(command)
            if self._told(command, printed, script.files):
                command = command._replace(args=())  # what its file says is known
            folder, command = standing(command, folder)
            self._one(command, kinds, "\n".join(printed))
        for target, place in script.writes:
            self._writes(target, script.commands[place].text if place < len(script.commands) else "")
        for source, place in script.reads:
            if is_stream(source):
                self._did("execute", "file", "one", (source,), source)
                self._did("hide", "file", "one", (source,), source)
            if place < len(script.commands):
                self._place("read", source, script.commands[place].text)
        if script.answered and any(word in text.lower() for text in script.texts for word in _ASKS_HOSTS):
            self._did("execute", "host", "one", (), script.commands[script.answered[0]].text)
        self._ran(commands)

    def _told(self, command: Command, printed: Sequence[str], files: Mapping[str, Sequence[str]]) -> bool:
        """Read the orders that a command is given, or the script that it runs, if it was written here."""
        if command.name in TOLD:
            self.scripts += (orders := [("cmd", line) for line in told(command, printed, files)])
            return bool(orders)
        for word in map(base_name, (command.program, *command.args)[:_MOST_SCRIPTS] if files else ()):
            written_in = _WRITTEN_IN.get(word.rpartition(".")[2])
            if word[-4:] == ".reg" and word in files and command.name in {"reg", "regedit"}:
                self.scripts += [("cmd", line) for line in of_registry("\n".join(files[word]))][:_MOST_SCRIPTS]
            if written_in is not None and word in files and command.name != "echo":
                self.scripts.append((written_in, "\n".join(files[word])))
        return False

    def _resolved(self, command: Command) -> str:
        name = command.name
        if name in self._aliases:
            return self._aliases[name]
        known = powershell_aliases().get(name)
        if known is not None:
            return known
        head, slash, last = name.rpartition("\\")
        if slash and head and "-" in last and not head.startswith((".", "$")) and ":" not in head and "\\" not in head:
            return powershell_aliases().get(last, last)  # a command with the module that it is of
        return program_name(name) if name[:1] not in "[.=" or name[1:2] in ("\\", "/", ".") else name  # `.\x.exe`

    def _ran(self, commands: Sequence[Command]) -> None:
        if locked := locks_away(commands):
            self._did("encrypt", "home", "many", (), locked)
        self.scripts.append(("bash", "\n".join(self._handed)))
        self.facts.effects += filter(None, map(carried, staged(commands, ())))  # what is packed, and then sent
        plain = [command for command in commands if command.name[:1] not in "[.="]
        self.facts.ran.extend(runs(plain))

    def _one(self, command: Command, kinds: frozenset[str], printed: str) -> None:
        name, args = command.name, command.args
        if not name:
            return
        if name in _COMMON_TYPES:
            self._shell(command, kinds, printed)
        elif name in vocabulary().values["psinvokes"] and not (name == "[scriptblock]::create" and "fetched" in kinds):
            self._invoked(command, kinds, printed)
        elif name in vocabulary().values["psstarts"] and (line := started_line(args)):
            self.scripts.append(("cmd", line))
        elif name in _RUNS_LINE and args:
            self.scripts.append(("cmd", args[0]))
        elif (name in vocabulary().values["psremotecode"] and kinds) or (name == "add-type" and "fetched" in kinds):
            self._did("execute", "host" if "fetched" in kinds else "code", "one", (), command.text)
        elif name in {"new-object", "set-alias", "new-alias"}:
            self._named(name, args)
        elif name == "=" and args:
            self._assigned(args)
        if verb := gives_away(name, kinds):
            self._did(verb, "credential", "one", (), command.text)
        if name[:1] in "[." and any(word in arg.lower() for arg in args for word in _HIDES_FROM):
            self._did("disable", "defence", "one", (), command.text)
        elif name[:1] not in "[.=":
            if is_cmdlet(name):
                self.facts.writes = self.facts.writes or name in _CHANGES
                self.facts.network = self.facts.network or name in FETCHING
            elif name not in _CALLED and hands_on(name):
                self._hands_on(command, kinds, printed)
            elif name in _JUDGED and (args or "-" in name or name not in _TOOLS_OF_ATTACK):
                judge_command(command, self.facts)
            self._places(command)
            self._runs_fetched(command)
        self._address = next((arg for arg in args if "://" in arg), self._address)
        self._fetches(command, kinds)
        self._effects(command)
        told = [("cmd", line) for line in relayed(command)] if "-" not in name else []
        self.scripts += [(_dialect_of(shell), line) for shell, line in inner_lines(name, args) + told]

    def _effects(self, command: Command) -> None:
        found = effects_of(command.name, command.args)
        if "-" in command.name and command.name not in uses():
            found = cmdlet_effects(next(iter(command.text.split(None, 1)), ""), command.args, every=self._every)
        self._every = self._lists(command)
        for did in found:
            whole = command.name != "remove-item" or any(arg[:2].lower() == "-r" for arg in command.args)
            if not (did.values and through_door(did.verb, did.values[0], given_text(command), self.facts, whole=whole)):
                self._did(*did, command.text)
        lowered = command.text.lower()
        if not is_cmdlet(command.name) and any(sign in lowered for sign in _SIGNS_OF_ANY):
            for did in effects_of("any", command.args):
                self._did(*did, command.text)

    def _lists(self, command: Command) -> bool | None:
        """Whether what is handed on is all that there is of a kind; nothing where one is named."""
        known = vocabulary().values
        if command.name.startswith("get-"):
            one = any(arg.lower() in ("-name", "-identity", "-id") for arg in command.args)
            return (
                None
                if one and "*" not in command.args
                else all(arg.lower() in known["pseverything"] for arg in command.args)
            )
        return self._every and command.name not in known["psnarrows"]

    def _did(self, verb: Verb, resource: Resource, scope: EffectScope, values: tuple[str, ...], evidence: str) -> None:
        self.facts.effects.append(ResourceEffect(verb, resource, scope, values, "", evidence[:_EVIDENCE]))

    def _places(self, command: Command) -> None:
        """What the spelling of a command's words says, whatever the program."""
        program = command.program or command.name
        if is_share(program):
            self._did("execute", "host", "one", (program,), command.text)
        for word in (program, *command.args):
            if len(word) < 1_024 and ":" in word and is_stream(word):
                self._did("hide", "file", "one", (word,), command.text)
                break
        if poses(program):
            self._did("impersonate", "program", "one", (program,), command.text)
        if attacks(command):
            self.facts.add("shell.attack-tool", command.text)

    def _fetches(self, command: Command, kinds: frozenset[str]) -> None:
        """Remember files that are fetched, and whether from a place, or to one, that no honest maker has."""
        target = fetched_file(command, kinds)
        if target and len(self._fetched) < 64:
            words = " ".join(command.args).lower()
            odd = is_of("loose", target) or _PLAIN_HOST.search(words) is not None
            self._fetched[base_name(target)] = odd

    def _runs_fetched(self, command: Command) -> None:
        """A file that was fetched from an odd place before is run, by itself or by a program that runs others."""
        if not self._fetched or fetched_file(command, _NO_KINDS):
            return
        names = [command.program or command.name]
        if command.name in vocabulary().values["runsfiles"] | _COMMON_TYPES | _BASHES:
            names += command.args
        hidden = "hidden" in command.text.lower()
        for name in names:
            odd = self._fetched.get(base_name(name))
            if odd or (odd is not None and hidden):
                self._did("receive", "code", "one", (name,), command.text)
                return

    def _writes(self, target: str, source: str, flow: FileFlow = UNKNOWN) -> None:
        self.facts.writes = self.facts.writes or target.lower() not in {"nul", "$null"}
        if is_stream(target):
            self._did("hide", "file", "one", (target,), source or target)
        if is_of("address", target):
            self._did("send", "address", "one", (target,), source or target)
        self._place("write", target, source or target, flow)

    def _place(self, verb: Verb, path: str, text: str, flow: FileFlow = UNKNOWN) -> None:
        resource, scope, shown = placed_path(path)
        if resource != "file" and not through_door(verb, path, flow, self.facts):
            self._did(verb, resource, scope, (shown,), text)

    def _hands_on(self, command: Command, kinds: frozenset[str], printed: str) -> None:
        """Take a program with what it is given for a line of a shell of Linux, which reads what such programs start."""
        given = f"printf %s {shlex.quote(printed)} | " if printed else ""
        if "fetched" in kinds:
            given = f"{shlex.join(['curl', self._address])} | "
        if given or command.args:
            self._handed.append(given + shlex.join([command.name, *command.args]))

    def _shell(self, command: Command, kinds: frozenset[str], printed: str) -> None:
        name, args = command.name, command.args
        if name in POWERSHELLS:
            script, hidden = powershell_script(args)
            if script:
                self.scripts.append(("powershell", script))
            elif printed:
                self.scripts.append(("powershell", printed))
            if hidden:
                self._did("execute", "code", "one", (), command.text)
        else:
            script, hidden = cmd_script(args), False
            self.scripts.append(("cmd", script or printed))
        if "fetched" in kinds and script[:1] in {"", "$"}:
            self._did("execute", "host", "one", (), command.text)

    def _invoked(self, command: Command, kinds: frozenset[str], printed: str) -> None:
        given = printed or next((arg for arg in command.args if arg and not arg.startswith("-")), "")
        if "fetched" in kinds or (self._sockets and not given.strip("$")[:1].isupper() and given[:1] in {"$", ""}):
            self._did("execute", "host", "one", (), command.text)
        elif given and _IS_NAME.match(given) is None:
            self.scripts.append(("powershell", given))
        elif "decoded" in kinds:
            self._did("execute", "code", "one", (), command.text)

    def _named(self, name: str, args: Sequence[str]) -> None:
        if name == "new-object":
            self._sockets = self._sockets or any(socket in arg.lower() for arg in args for socket in _SOCKETS)
        else:
            plain = [arg for arg in args if not arg.startswith("-")]
            if len(plain) > 1 and len(self._aliases) < 64:
                target = plain[1].lower()
                self._aliases[plain[0].lower()] = powershell_aliases().get(target, target)

    def _assigned(self, args: Sequence[str]) -> None:
        place, *values = args
        if place.lower().endswith(".filename"):
            self._started = " ".join(values)
        elif place.lower().endswith(".arguments") and self._started:
            self.scripts.append(("cmd", f"{self._started} {' '.join(values)}"))
        if any(word in text.lower() for text in args for word in _HIDES_FROM):
            self._did("disable", "defence", "one", (place,), place)
        if place.lower().startswith(("hklm:", "hkcu:")) and values:
            found = written_value(place, "", values[0])
            if found is not None:
                self._did("write", found[0], found[1], (found[2],), place)


_WRITES: Final = frozenset({"set-content", "out-file", "add-content"})
_TAKES_PLACES: Final = frozenset({"remove-item", "clear-content", "get-content", "stop-service"})
_NO_KINDS: Final = frozenset[str]()
_FETCHED: Final = frozenset({"fetched"})
