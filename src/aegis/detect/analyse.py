"""Hands each string to the analyser of its role, and collects what they saw."""

from __future__ import annotations

import importlib
from collections.abc import Sequence, Set
from functools import lru_cache
from typing import Final

from msgspec import Struct, field, structs

from aegis.core.effects import KIND_OF, MAX_VALUES, ResourceEffect
from aegis.core.finding import Finding
from aegis.core.outcome import Category, Effect, Outcome, Risk
from aegis.core.patterns import compile_all
from aegis.core.text import TextRole
from aegis.detect.endpoints import command_request
from aegis.detect.extract import exceeded
from aegis.detect.facts import MOST_EFFORT, Effort, RanCommand, Signal, Text
from aegis.detect.files import UNKNOWN_GAP, Files, Written, last_name
from aegis.detect.fold import legible
from aegis.detect.hosts import is_local, is_look_alike, is_metadata, names_metadata, poses, read_target
from aegis.detect.paths import climbs, is_plain_path, told_by
from aegis.detect.queries import query_effects
from aegis.detect.quick import one_of
from aegis.detect.resources import lets_in, place_of
from aegis.detect.restated import Restated, as_applescript, guards_by_name
from aegis.detect.roles import words_of
from aegis.detect.self_running import commands_in, gives_away
from aegis.detect.structured import asked
from aegis.detect.tool_files import breaks, concerns_others, is_of_tests, language_by_ending, put_at, script_of, steals

_CLIENTS: Final = frozenset({"az", "curl", "gh", "glab", "http", "https", "wget", "xh"})
_RUNS: Final[frozenset[TextRole]] = frozenset({"command", "sql", "path", "url"})
EXECUTED: Final = 60  # the confidence from which a text in the role of code counts as run by the tool
_PARSED: Final[frozenset[TextRole]] = frozenset({"sql", "command", "code"})
_QUERIES: Final[frozenset[TextRole]] = frozenset({"query_fragment", "unknown"})
MAX_QUERY: Final = 16_384  # characters of a text that is looked at as a query though nothing says that it is one
_EVIDENCE: Final = 200
_OF_READING: Final = frozenset({"path.secret", "path.settings"})
_DELETES: Final = frozenset({"delete", "erase", "remove", "rm", "rmdir", "rmtree", "trash", "unlink"})
_MOST_SIGNALS: Final = 200  # places of one kind of signal that are kept: a flood of one hides no other
# Schemes by which a program fetches: in an address of a database, who signs in says nothing of where it leads.
_FETCHED: Final = frozenset({"", "http", "https", "ftp", "gopher", "dict", "tftp", "ws", "wss"})
_LONGEST_URL: Final = 8_192  # characters of what is looked at as a URL though nothing says that it is one
_MOST_CLIMBED: Final = 3  # folders above its start that a relative path may not lead
_SHARE: Final = 4  # of the effort of a call, one part is for what its writes run later
_MOST_PROGRAMS: Final = 64  # pieces of code in one command that are parsed; a command with more was not read whole


def preload() -> None:
    """Import every parser and compile every pattern now; without it the first text that needs one waits for that."""
    for name in ("code", "shell.windows", "sql"):
        importlib.import_module(f"aegis.detect.{name}")
    compile_all()


class Gathering(Struct):
    """What the analysers of one call found so far.

    `read` are programs that stand in no argument, each with the place that runs it; `touched` says that anything was
    found at all.
    """

    files: Files | None = None
    effort: Effort = field(default_factory=Effort)
    effects: frozenset[Effect] = frozenset()
    irreversible: bool = False
    tier: Risk = Risk.LOW
    runs: list[str] = []
    read: list[tuple[str, str]] = []
    written: list[Written] = []
    notes: list[Finding] = []
    unparsed: list[str] = []
    signals: list[Signal] = []
    ran: list[RanCommand] = []
    resource_effects: list[ResourceEffect] = []
    limits: list[Finding] = []
    shortened: bool = False
    touched: bool = False
    _places: dict[str, set[str]] = {}

    def signal(self, fact: str, text: Text, evidence: str) -> None:
        self.touched = True
        places = self._places.setdefault(fact, set())
        if len(places) < _MOST_SIGNALS and text.path not in places:
            places.add(text.path)
            self.signals.append(Signal(fact, text.path, evidence[:_EVIDENCE], text.role))

    def effect(self, effect: ResourceEffect, text: Text) -> None:
        """Take in what the text does to a resource: a signal for rules, and one of the effects of the wire."""
        kind = KIND_OF.get(effect.verb)
        if kind is not None:
            self.effects |= {kind}
        places = self._places.get(effect.name)
        if places is None or text.path not in places:
            placed = effect._replace(
                path=text.path, values=effect.values[:MAX_VALUES], evidence=effect.evidence[:_EVIDENCE]
            )
            self.resource_effects.append(placed)
        self.signal(effect.name, text, effect.evidence or " ".join(effect.values[:1]))

    def takes(self, *facts: str) -> bool:
        """Whether a further signal of one of these kinds would be kept; if not, no more of them are looked for."""
        return any(len(self._places.get(fact, ())) < _MOST_SIGNALS for fact in facts)

    def raise_tier(self, tier: Risk) -> None:
        self.touched = True
        self.tier = max(self.tier, tier)

    def unread(self, text: Text) -> None:
        """Say that a text which would be executed was not read: it is too long, or the call asks for too much."""
        self.touched = True
        self.unparsed.append(text.path)
        if self.effort.left < 0 and not self.limits:
            self.limits.append(exceeded("effort", text.path))

    def is_told(self, text: Text) -> bool:
        """Whether nothing is left to say if a text like this one is not decoded."""
        return self.shortened and not _is_run(text)

    def undecoded(self, text: Text) -> None:
        """Say that a text was not read in every encoding because the call asks for too much; data may stay unread."""
        self.touched = True
        if _is_run(text):
            self.limits = self.limits or [exceeded("decoding", text.path)]
        else:
            self.shortened = True
            self.notes.append(structs.replace(exceeded("decoding", text.path), guard="facts", outcome=Outcome.ALLOW))

    def note(self, rule: str, category: Category, text: Text, message: str, evidence: str) -> None:
        self.notes.append(
            Finding(
                guard="facts",
                rule=rule,
                category=category,
                severity=Risk.HIGH,
                outcome=Outcome.ALLOW,
                path=text.path,
                message=message,
                evidence=evidence[:_EVIDENCE],
            )
        )


def _is_run(text: Text) -> bool:
    """Whether a tool would execute the text, or go where it leads."""
    return text.role in _RUNS or (text.role == "code" and text.confidence >= EXECUTED)


def analyse(text: Text, found: Gathering, tool: str = "") -> None:
    """Add to `found` what the analyser of the text's role sees in it; `tool` is the name of what takes it.

    What is parsed is parsed once more as it looks, where that makes other words of it: databases, interpreters and
    tools differ in what they make of full-width letters and of letters with nothing visible between them.
    """
    role: TextRole = text.role
    if role in _PARSED and not text.value.isascii():
        seen = legible(text.value)
        if seen:
            analyse(text._replace(value=seen), found, tool)
    line = as_applescript(tool, text.value) if role in ("command", "code") else ""
    if line:
        role, text = "command", text._replace(value=line)
    if role == "sql":
        _sql(text, found)
    elif role == "command":
        _shell(text, found, tool)
        _query(text, found)
    elif role == "code":
        _code(text, found, tool)
        _query(text, found)
    elif role == "path":
        _path(text, found)
    elif role in _QUERIES and (" " in text.value or "(" in text.value):
        _query(text, found)
    elif role == "url" or (role != "content" and ("://" in text.value or names_metadata(text.value))):
        _url(text, found)


def _query(text: Text, found: Gathering) -> None:
    """Add what a text does as a statement, whatever it is else."""
    for effect in query_effects(text.value) if len(text.value) <= MAX_QUERY else ():
        found.effect(effect, text)


def analyse_restated(said: Restated, found: Gathering) -> None:
    """Add what the command does that a call is in other words: to which resources, and nothing of how it is spelled."""
    text = Text("", said.text, False, said.role, EXECUTED)
    inner = Gathering(None, found.effort)
    analyse(text, inner, "mongo" if said.role == "code" else "bash")
    for signal in inner.signals:
        if signal.fact in _OF_COMMANDS:
            found.signal(signal.fact, text, signal.evidence)
    for effect in inner.resource_effects:
        found.effect(effect, text)
    if inner.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)


_OF_COMMANDS: Final = frozenset({
    "shell.breaks", "shell.destroy", "shell.dumps-secret", "shell.grants", "shell.infrastructure",
    "shell.network-to-interpreter", "shell.privilege", "shell.weakens",
})  # fmt: skip


def analyse_reading(text: Text, reading: str, found: Gathering) -> None:
    """The same for another reading of a text, where a decoder stands between the tool and the value."""
    if text.role in {"path", "url", "identifier", "unknown", "query_fragment"}:
        role: TextRole = text.role if text.role in {"path", "url"} else "url"
        analyse(Text(text.path, reading, False, role, text.confidence), found)


def _sql(text: Text, found: Gathering) -> None:
    # The parsers take long to load; a call that holds no statement does not pay for that.
    from aegis.detect.sql import analyse_sql

    facts = analyse_sql(text.value, found.effort)
    found.touched = True
    if facts.reads:
        found.effects |= {"read"}
    if facts.writes:
        found.effects |= {"write"}
        found.raise_tier(Risk.MEDIUM)
    if facts.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-sql-irreversible", "destructive", text, "the statement destroys data for good", text.value)
    if facts.too_long:
        found.unread(text)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)
    for effect in facts.effects:
        found.effect(effect, text)


def _shell(text: Text, found: Gathering, tool: str, *, meant: bool = True) -> None:
    from aegis.detect.shell.windows import analyse_command

    if found.files is None:
        found.files = Files()
    facts = analyse_command(text.value, tool, found.effort, found.files)
    found.touched = True
    found.runs.extend(facts.runs)
    found.written.extend(facts.written)
    found.read.extend((text.path, program) for program in facts.read)
    effects: set[Effect] = {"exec"}
    if facts.network:
        effects.add("network")
    if facts.writes:
        effects.add("write")
        found.raise_tier(Risk.MEDIUM)
    found.effects |= effects
    if facts.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-shell-irreversible", "destructive", text, "the command destroys data for good", text.value)
    if facts.too_long and meant:
        found.unread(text)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)
    for effect in facts.effects:
        found.effect(effect, text)
    for one in facts.ran:
        if one.name in _CLIENTS:
            for effect in asked(*command_request(one.name, one.args)):
                found.effect(effect, text)
    found.ran.extend([one._replace(path=text.path) for one in facts.ran])
    if len(facts.statements) > _MOST_PROGRAMS or len(facts.programs) > _MOST_PROGRAMS:
        found.unread(text)
    for statement in facts.statements[:_MOST_PROGRAMS]:
        _destroys_data(statement, text, found)
    if facts.programs:
        from aegis.detect.code import analyse_code

        for language, program in facts.programs[:_MOST_PROGRAMS]:
            inner = analyse_code(program, language, found.effort, found.files)
            found.runs.extend(inner.runs)
            for name, evidence in inner.signals:
                found.signal(name, text, evidence)
            for effect in inner.effects:
                found.effect(effect, text)
            for statement in inner.statements[:_MOST_PROGRAMS]:
                _destroys_data(statement, text, found)
            if inner.too_long:
                found.unread(text)


def _destroys_data(statement: str, text: Text, found: Gathering) -> None:
    """A statement that a command hands to a database: what it destroys for good counts as the command's."""
    from aegis.detect.sql import analyse_sql

    facts = analyse_sql(statement, found.effort)
    if facts.too_long:
        found.unread(text)
    elif facts.irreversible:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
        found.note("facts-sql-irreversible", "destructive", text, "the statement destroys data for good", statement)
    for name, evidence in facts.signals:
        if name in _OF_SERVERS:
            found.signal(name, text._replace(role="sql"), evidence)
    for effect in facts.effects:
        found.effect(effect, text)


_OF_SERVERS: Final = frozenset({"sql.grants", "sql.configures"})  # what it does to a server, whoever hands it over


def _code(text: Text, found: Gathering, tool: str) -> None:
    from aegis.detect.code import analyse_code
    from aegis.detect.languages.syntax import is_told

    executed = text.confidence >= EXECUTED
    if executed and not is_told(text.value, tool.lower()):  # `run_script` starts what a shell reads as well
        _shell(text, found, tool, meant=False)
    facts = analyse_code(text.value, tool.lower(), found.effort, found.files if executed else None)
    if executed:
        found.runs.extend(facts.runs)
        found.read.extend((text.path, command) for command in sorted(facts.commands)[:_MOST_PROGRAMS])
        found.touched = True
        found.effects |= {"exec", "network"} if facts.network else {"exec"}
    if facts.irreversible and executed:
        found.irreversible = True
        found.raise_tier(Risk.HIGH)
    if facts.too_long and executed:
        found.unread(text)
    for name, evidence in facts.signals:
        found.signal(name, text, evidence)
    if executed:
        found.written.extend(facts.written)
        for effect in facts.effects:
            found.effect(effect, text)
        for statement in facts.statements[:_MOST_PROGRAMS]:
            _destroys_data(statement, text, found)


def analyse_run(text: Text, found: Gathering) -> None:
    """Add what a file does that a tool runs by its name, so far as it is known what it holds."""
    found.touched = True
    found.runs.append(text.value)
    for flow in found.files.find(text.value) if found.files is not None else ():
        if flow.gap == UNKNOWN_GAP:
            found.unread(text)
        found.read.append((text.path, flow.text))
        language = language_by_ending(text.value)
        role: TextRole = "sql" if language == "sql" else "code" if language else "command"
        analyse(Text(text.path, flow.text, False, role, EXECUTED), found, language)


def analyse_written(found: Gathering, texts: Sequence[Text]) -> list[tuple[str, TextRole, str]]:
    """Add what the writes of a call do: to which resource, and what will run of them by itself.

    Returns the programs that will, each with the place that it stands in and what it is read as.
    """
    running: list[tuple[str, TextRole, str]] = []
    recipes = set[str]()
    # The call runs nothing of it: what is too long to be read is a document still.
    later = Gathering(None, Effort(MOST_EFFORT // _SHARE))
    for written in found.written[:_MOST_PROGRAMS]:
        place = place_of(written.path)
        if place is None or place.resource == "public-place":
            _carried(written, later, found)
        resource = None if place is None else place.resource
        text = next((one for one in texts if one.value == written.path), None)
        if text is None:
            text = next((one for one in texts if one.role in _PARSED), None) or Text("", written.path)
        named = Text(text.path, written.path, False, "path", EXECUTED)
        if place is not None:
            found.effect(ResourceEffect("write", place.resource, "one", (place.path,), "", written.path), named)
        language, programs = commands_in(resource, written)
        for effect in gives_away(resource, written, language, programs):
            found.effect(effect, named)
        if _RECIPES(last_name(written.path)):
            recipes.add(text.path)
        for program in programs:
            role: TextRole = "code" if language else "command"
            running.append((text.path, role, program))
            analyse(Text(text.path, program, False, role, EXECUTED), later, language)
    for signal in later.signals:
        if signal.fact in _ELSEWHERE or (signal.fact == "shell.infrastructure" and signal.path in recipes):
            continue
        found.signal(signal.fact, Text(signal.path, "", role=signal.role), signal.evidence)
    found.resource_effects.extend(later.resource_effects)
    return running


# A known installer, and what a pipeline is for: both are run elsewhere or not at all.
_ELSEWHERE: Final = frozenset({"shell.installs", "shell.publishes"})


# Files of named steps, each run when somebody asks for it by its name: `make clean-volumes`, as a script of that name.
_RECIPES: Final = one_of(r"(?i)^(?:gnu)?makefile$|\.mk$|^justfile$|^taskfile\.ya?ml$")


def _carried(written: Written, later: Gathering, found: Gathering) -> None:
    """Add what a program that is only written would do wherever it is run; what it does to its own data is its own."""
    program = written.flow.text
    role, language = script_of(written.path, program)
    if role is None or language == "sql":
        return
    inner, text = Gathering(None, later.effort), Text("", "", role="code")
    analyse(Text("", program, False, role, EXECUTED), inner, language)
    is_test = is_of_tests(written.path)
    for signal in inner.signals:
        if steals(signal.fact) if role == "command" else breaks(signal.fact, program, is_test=is_test):
            found.signal(signal.fact, text, signal.evidence)
    for effect in inner.resource_effects if role == "code" and not is_test else ():
        if concerns_others(effect):
            found.effect(effect, text)


@lru_cache(maxsize=8_192)
def deletes_by_name(tool: str) -> bool:
    """Whether the name of a tool says that it deletes what it is given."""
    return not _DELETES.isdisjoint(words_of(tool))


def analyse_files(tool: str, texts: Sequence[Text], found: Gathering, own: Set[str]) -> tuple[str, ...]:
    """Add what the files mean that a tool writes or deletes: the same as of a command that does.

    `own` are those that the tool writes itself: what a program that it runs writes, an argument may name to be read.
    Returned are the pointers of files that are only written or deleted: of them nothing is read, whatever they hold.
    """
    deletes = deletes_by_name(tool)
    from aegis.detect.shell.doors import analyse_words, analyse_write

    paths = {text.value: text for text in texts if text.role == "path" and not text.is_key}
    for target in put_at(tool, texts):
        there = place_of(f"{target.value.rstrip('/')}/x") or place_of(target.value)  # a folder, or the file itself
        if there is not None:
            found.effect(ResourceEffect("write", there.resource, "one", (there.path,), "", target.value), target)
    unread = own | set(paths) if deletes or guards_by_name(tool) else own
    found.signals = [one for one in found.signals if one.fact not in _OF_READING or one.evidence not in unread]
    done = [analyse_words("rm", "-r", path) for path in paths] if deletes else []
    places = list(paths) if deletes else []
    for written in found.written[:_MOST_PROGRAMS]:
        if found.effort.take(len(written.flow.text)):
            done.append(analyse_write(written.path, written.flow))
            places.append(written.path)
    for place, facts in zip(places, done, strict=True):
        text = paths.get(place) or Text("", place)
        for name, evidence in facts.signals:
            found.signal(name, text._replace(role="command"), evidence)
        for effect in facts.effects:
            found.effect(effect, text)
        if facts.irreversible:
            found.irreversible = True
            found.raise_tier(Risk.HIGH)
    return tuple(text.path for path, text in paths.items() if path in unread and is_plain_path(path))


def _path(text: Text, found: Gathering) -> None:
    value = text.value
    if len(value) > 4_096:
        return
    if ".." in value and climbs(value, 1 if value.startswith(("/", "\\")) else _MOST_CLIMBED):
        found.signal("path.leaves", text, value)
    told = told_by(value) or ("secret" if (value[:1] in "~/" or value[1:2] == ":") and lets_in(value) else "")
    if told:
        found.signal(f"path.{told}", text, value)
    if value.startswith(("http://", "https://")):
        _url(text, found)


def _url(text: Text, found: Gathering) -> None:
    value = text.value
    if len(value) > _LONGEST_URL and text.role != "url":
        return
    target = read_target(value)
    if target is None:
        return
    if target.scheme:
        found.effects |= {"network"}
        found.touched = True
    if not found.takes("host.metadata", "host.disguised", "host.local", "host.look-alike"):
        return
    local = is_local(target)
    if is_metadata(target):
        found.signal("host.metadata", text, value)
    elif local and (target.odd_spelling or (target.userinfo and target.scheme in _FETCHED) or poses(target, value)):
        found.signal("host.disguised", text, value)
    elif local and target.scheme:
        found.signal("host.local", text, value)
    elif target.odd_spelling and target.scheme:
        found.signal("host.disguised", text, value)
    elif ("xn--" in target.host or not target.host.isascii()) and is_look_alike(target):
        found.signal("host.look-alike", text, value)
