"""What the calls of a program do to which resources, with their arguments followed to constants."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cached_property
from operator import attrgetter
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.effects import EffectScope, Resource, ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.files import Written, only_sets, writes_of
from aegis.detect.languages.bindings import called_name
from aegis.detect.languages.calls import RECEIVER, CallEntry, KnownCalls, calls_of
from aegis.detect.languages.followed import HOLE, UNKNOWN, FollowedValue
from aegis.detect.languages.leaks import leaked
from aegis.detect.languages.made import KEYWORDS, keyword, program_file, started
from aegis.detect.languages.numeric import is_narrow, octal
from aegis.detect.languages.reach import MOST_CALLS, Reached, scope_of
from aegis.detect.languages.requests import (
    CALLS_ITSELF,
    FETCHES,
    HANDS,
    SPEAKS_OF_CLOUD,
    Chains,
    behind,
    called_so,
    cloud_command,
    cloud_operations,
    cluster_operation,
    ends_of,
    handed_names,
    is_empty,
    is_for_tests,
    is_from_afar,
    is_grave,
    looked_up,
    only_asks,
    picked_names,
    says,
    squashed,
    unnarrowed,
)
from aegis.detect.languages.service_calls import SENDS, ServiceCalls, as_started, speaks_to_emulator, started_by_members
from aegis.detect.languages.sweeps import ends_something, is_conditional, sweeps
from aegis.detect.languages.syntax import (
    SHELLS_OUT,
    Called,
    CodeLanguage,
    arguments_of,
    called,
    canonical,
    root_of,
    text_of,
)
from aegis.detect.languages.values import NameScope
from aegis.detect.paths import is_secret_file
from aegis.detect.resources import host_place, is_any_secret, opens_to_all, place_of
from aegis.detect.shell.keys import is_key, written_value
from aegis.detect.shell.tamper import tampering_write
from aegis.detect.tool_words import is_throwaway

_ENTERS: Final = frozenset({
    "chdir", "setcurrentdirectory", "setwd", "cd", "set_current_dir", "changecurrentdirectorypath",
})  # fmt: skip
_MOST_ASKED: Final = 32  # calls of a loop of which it is asked what stands before them
_SHOWN: Final = 80
_TRIES_CLUSTER: Final = Lazy(r"(?i)dry_?run[\"']?\s*[:=]\s*\[?\s*[\"']All")
_STORED: Final = frozenset({"database", "table", "record", "storage"})
_MOST_WRITTEN: Final = 8  # texts that a program writes of which it is asked what they do
_PUTS: Final = frozenset(
    {"write", "puts", "print", "printf", "fwrite", "fputs", "writestring", "write_all", "writelines", "writeln"}
)
_FUNCTIONS_BY_NAME: Final = ("target", "func", "function", "callback")
_WRITES: Final = Lazy(r"WRONLY|RDWR|CREAT|TRUNC|APPEND")


class ProgramDeeds(NamedTuple):
    """What a program does: effects, the command lines, programs in its own language and statements that it runs, and
    texts that it writes to files.

    A request to a cloud is the command line that makes the same request.
    """

    effects: list[ResourceEffect]
    commands: list[str]
    programs: list[str]
    statements: list[str]
    written: list[Written]


def deeds_of(reached: Reached, language: CodeLanguage) -> ProgramDeeds:
    """The deeds of a text by what its grammar captured."""
    program = _Program(reached, language)
    for node in sorted(list(reached.nodes.get("call", ()))[:MOST_CALLS], key=attrgetter("start_byte")):
        program.take(node)
    return program.deeds()


class _Program:
    def __init__(self, reached: Reached, language: CodeLanguage):
        nodes = reached.nodes
        self._known: KnownCalls = calls_of(language)
        self._language, self._names, self._nodes = language, reached.names, nodes
        calls = list(nodes.get("call", ()))[:MOST_CALLS]
        self._services = ServiceCalls(self._names.functions, calls, self.scope, self._text)
        self._chains = Chains(calls)
        self._picked = dict(picked_names(nodes.get("assign", ())))
        self._scope = reached.scope
        self._found: dict[tuple[Verb, Resource], tuple[EffectScope, dict[str, None], str]] = {}
        self._commands: dict[str, None] = {}
        self._programs: dict[str, None] = {}
        self._statements: dict[str, None] = {}
        self._brought: dict[str, int] = {}  # files that the program writes, and how often
        self._written: list[tuple[str, str]] = []  # ... and the texts that are known
        self._puts: list[Node] = []  # calls that write to what was opened
        self._owner: tuple[Called | None, str] = (None, "")
        self._asked, self._folder = 0, ""  # the folder that the program has gone to
        for name, module in list(self._names.loaded()):
            for text in self.scope().value(module).known[:1]:
                self._names.aliases.setdefault(name, text.removeprefix("node:"))
        ends = self._known.ends
        self._ends = ends | {
            name.lower() for name, target in self._names.aliases.items() if target.rpartition(".")[2].lower() in ends
        }

    def deeds(self) -> ProgramDeeds:
        put = len(self._puts) if len(self._brought) == 1 else 0
        if put:
            for node in self._puts[:_MOST_WRITTEN]:
                self._put(next(iter(self._brought)), "write", called(node).arguments[:2])
        effects = [
            ResourceEffect(
                verb, resource, "many" if scope == "one" and len(values) > 1 else scope, tuple(values), "", shown
            )
            for (verb, resource), (scope, values, shown) in self._found.items()
            if not (
                (verb, resource) == ("write", "startup") and only_sets(values, self._written, self._brought, put, HOLE)
            )
        ]
        asked = [*effects, *self._services.effects()]
        lines, programs, stated = (list(one) for one in (self._commands, self._programs, self._statements))
        lines += self._services.further_lines(lines)
        return ProgramDeeds(asked, lines, programs, stated, writes_of(self._written, self._brought, HOLE))

    def take(self, node: Node) -> None:
        if node.type in SHELLS_OUT:
            for text in self.scope().value(node).known:
                self._command(text)
            return
        if self._looks_up(node) or (self._language == "python" and only_asks(node, self.scope)):
            return
        written = called_name(node)
        last = written.lower()
        if last in HANDS:
            self._hand(called(node), node)
        written = called_so(node, written, self._picked, self.scope)
        command = self._services.take(written, node)
        if command is not None:
            self._command(command)
        if last in _ENTERS:
            for one in arguments_of(node)[:1]:
                folder = self._from_here(next(iter(self.scope().value(one).known), HOLE))
                self._folder = "" if HOLE in folder else folder
        if (words := self._operation(self._names.aliases.get(written, written).rpartition(".")[2])) is not None:
            self._command(cloud_command(words, called(node).arguments, self.scope()))
        if ends_something(last):
            self._sweep(called(node), node)
        self._puts += [node] if last in _PUTS else []
        if last not in self._ends and not self._names.held(node):
            return
        parts = called(node)
        for name in self._names.full(parts):
            entries = self._known.does.get(name)
            if entries is not None:
                for entry in entries:
                    self._do(entry, parts, node)
                return

    def _sweep(self, parts: Called, node: Node) -> None:
        swept = list(sweeps(self._names.full(parts), parts, self.scope()))
        for effect in swept if swept and not self._is_conditional(node) else ():
            self._add(effect.verb, effect.resource, effect.scope, effect.values[0], effect.evidence)

    def _looks_up(self, node: Node) -> bool:
        """Take a call of what is looked up by its name: `getattr(os, "sys" + "tem")(line)`; false for every other."""
        function = node.child_by_field_name("function")
        if function is not None and function.type == "identifier" and self._gets:  # `op = getattr(fleet, name)`
            bound = [one.value for one in self.scope().bounds_of(text_of(function))]
            function = bound[0] if [called_name(one) for one in bound] == ["getattr"] else function
        found = None if function is None else looked_up(function, self._language, self.scope, self._names.aliases)
        if found is None:
            return False
        entries = [entry for name in found.names for entry in self._known.does.get(name, ())]
        odd = not found.is_plain and not (found.names and all(name in self._known.makes for name in found.names))
        if odd:
            self._add("execute", "program", "one", text_of(function)[:_SHOWN], text_of(node)[:_SHOWN])
        for entry in entries:
            self._do(entry, Called(None, "", arguments_of(node)), node)
        if not entries and found.owner is not None:
            methods = dict.fromkeys(name.rpartition(".")[2] for name in found.names)
            entries = [entry for name in methods for entry in self._known.does.get(f".{name}", ())]
            for entry in entries:
                self._do(entry, Called(found.owner, "", arguments_of(node)), node)
        return bool(entries) or odd

    def _hand(self, parts: Called, node: Node) -> None:
        """Take a function that another one is handed by its name: `map(os.remove, paths)`, `send(:system, line)`."""
        plain = [one for one in parts.arguments if one.type not in KEYWORDS]
        if parts.name in CALLS_ITSELF and parts.receiver is not None:  # `fs.rmSync.call(null, path)`
            rest = plain if self._language == "ruby" else plain[1:]
            if parts.name == "apply":
                rest = [inner for one in rest for inner in one.named_children]
            self._hand_on(handed_names(parts.receiver, self.scope, self._names.aliases), rest, parts, node)
        if (parts.name, len(plain)) in (("apply", 3), ("call_user_func_array", 2)):  # `Reflect.apply(f, owner, [path])`
            plain = [plain[0], *plain[-1].named_children]
        if parts.name in SENDS and plain:
            owner = "" if parts.receiver is None else f"{canonical(text_of(parts.receiver))}."
            told = self.scope().value(plain[0]).known
            for name in filter(ends_something, told):
                self._sweep(Called(parts.receiver, name, tuple(plain[1:])), node)
            names = [f"{owner}{name}" for name in told]
            self._hand_on(names, [*plain[1:], *(one for one in parts.arguments if one.type in KEYWORDS)], parts, node)
        named, listed = keyword(parts, _FUNCTIONS_BY_NAME), keyword(parts, ("args", "argument"))
        for at, function in enumerate(plain[:3] if named is None else [named]):
            if function.end_byte - function.start_byte >= _SHOWN:
                continue
            rest = plain if named is not None else behind(parts.name, plain, at)
            rest = [*rest, *(one for one in parts.arguments if parts.name == "partial" and one.type in KEYWORDS)]
            if not rest and listed is not None:
                rest = list(listed.named_children)
            self._hand_on(handed_names(function, self.scope, self._names.aliases), rest, parts, node)

    def _hand_on(self, names: Sequence[str], rest: Sequence[Node], parts: Called, node: Node) -> None:
        for one in names:
            owner, dot, last = one.lower().rpartition(".")
            if words := self._operation(last):
                self._command(cloud_command(words, rest, self.scope()))
            entries = self._known.does.get(one.lower(), ()) if owner or not dot else ()
            for entry in entries:
                given = rest if rest or parts.receiver is None else [parts.receiver]
                self._do(entry, Called(None, "", tuple(given)), node)
            if not entries and dot:  # a method, of each of what is gone over
                each = parts.receiver if not rest else rest[0]
                for entry in self._known.does.get(f".{last}", ()):
                    self._do(entry, Called(each, last, ()), node)

    def _operation(self, name: str) -> str | None:
        """The command line of a cloud's operation: a name of three words is nothing else's, a shorter one may be."""
        if (asked := cluster_operation(name.lower())) is not None and _TRIES_CLUSTER.search(self._text()) is None:
            return asked
        words = cloud_operations().get(squashed(name.lower()))
        return words if words is not None and (words.count("-") > 1 or self._is_of_cloud) else None

    @cached_property
    def _is_of_cloud(self) -> bool:
        """Whether the text speaks of the cloud whose operations have such names."""
        return SPEAKS_OF_CLOUD.search(self._text()) is not None

    @cached_property
    def _gets(self) -> bool:
        return "getattr" in self._text()  # something may be looked up by its name

    def _text(self) -> str:
        return text_of(root_of(next((one for several in self._nodes.values() for one in several), None)))

    def scope(self) -> NameScope:
        """The names of the text, collected when the first of them is asked for."""
        if self._scope is None:
            self._scope = scope_of(self._names, self._language)
        return self._scope

    def _do(self, entry: CallEntry, parts: Called, node: Node) -> None:
        owner = self._called_on(parts) if entry.on or entry.unless else ""
        if (entry.on and not any(word in owner for word in entry.on)) or (entry.bare and parts.arguments):
            return
        if (entry.unless and self._chains.narrows(node, owner, entry.unless)) or (
            entry.empty is not None and not is_empty(parts.arguments, entry.empty, self.scope())
        ):
            return
        scope = self.scope()
        if (entry.says and not says(entry.says, parts, scope)) or (entry.always and self._is_conditional(node)):
            return
        if entry.spared and says(entry.spared, parts, scope):
            return
        if entry.runs is not None:
            for given in self._services.given_to(node) or (None,):
                with nullcontext() if given is None else scope.standing_for(given):
                    self._run(entry, parts, scope)
            return
        shown = text_of(node)[:_SHOWN]
        if entry.registry and self._writes_key(entry, parts, shown):
            return
        if entry.resource is not None:
            tried = speaks_to_emulator if entry.resource == "storage" else is_for_tests
            if entry.does == "delete" and entry.resource in _STORED and tried(self._text()):
                return
            values = [text for place in entry.of for text in self._argument(parts, place, entry).known]
            if entry.everything:
                if any(value in entry.everything for value in values):
                    self._add(entry.does, entry.resource, "all", values[0], shown)
            elif entry.does != "delete" or not values or not all(map(is_throwaway, values)):
                self._add(entry.does, entry.resource, entry.scope, values[0] if values else parts.name, shown)
            return
        modes = parts.arguments if entry.does == "permit" and "own" not in parts.name.lower() else ()
        if (entry.paths and sum(one.type not in KEYWORDS for one in parts.arguments) > 1) or any(
            is_narrow(scope.value(one)) for one in modes
        ):
            return
        if entry.hosts:
            for place in entry.of:
                for text in self._argument(parts, place, entry).known:
                    reached = host_place(text) if HOLE not in text.partition("://")[2].partition("/")[0] else None
                    if reached is not None:
                        self._add(entry.does, reached, entry.scope, text, shown)
                        for sent in leaked(parts.name.lower(), text_of(node), (), (f"to {reached}",), shown):
                            self._add(sent.verb, sent.resource, sent.scope, text, shown)
            return
        verb = self._verb(entry, parts, scope)
        if verb == "write" and any(scope.value(one).known == ("",) for one in parts.arguments[1:2]):  # is emptied
            verb = "hide"
        for place in entry.of:
            for text in self._argument(parts, place, entry).every:
                path = text
                if entry.inline_mode:
                    if len(parts.arguments) > 2 or not text.startswith((">", "<")):
                        continue
                    verb, path = ("write" if text.startswith(">") else "read"), text.lstrip("<> ")
                if not entry.paths or "/" in path or "\\" in path or path.startswith("~"):
                    self._touch(verb, path, entry.scope, shown)
                    self._put(path, verb, [one for at, one in enumerate(parts.arguments[:3]) if at not in entry.of])

    def _put(self, path: str, verb: Verb, given: Sequence[Node]) -> None:
        """Take what else a call is given of a file: the texts that it writes, the mode that lets everybody write it."""
        for one in given if verb in ("write", "hide", "permit") else ():
            value = self.scope().value(one)
            known = value.known[:1]
            if verb != "permit":
                self._written += [(path, text) for text in known if len(self._written) < _MOST_WRITTEN]
            elif (
                any(map(opens_to_all, (*known, *octal(value), text_of(one)))) and (opened := place_of(path)) is not None
            ):
                self._add("expose", opened.resource, "one", path, text_of(one.parent)[:_SHOWN])

    def _is_conditional(self, node: Node) -> bool:
        """Whether something is asked before a call of a loop is made; of a text with many such calls none counts."""
        self._asked += 1
        return self._asked > _MOST_ASKED or is_conditional(node)

    def _called_on(self, parts: Called) -> str:
        """What a method is called on, in small letters: its name, and what that was made of."""
        if self._owner[0] is parts:  # what several entries ask of one call
            return self._owner[1]
        name = text_of(parts.receiver)
        made = self.scope().bounds_of(name) if name.lstrip("$@").isidentifier() else ()
        owner = unnarrowed(" ".join([ends_of(name), *(text_of(one.value)[:_SHOWN] for one in made)])).lower()
        self._owner = (parts, owner)
        return owner

    def _writes_key(self, entry: CallEntry, parts: Called, shown: str) -> bool:
        """Add what a value of a registry key does that is written; false where it is not known which key that is."""
        key, *rest = (self._argument(parts, place, entry) for place in entry.of)
        told = [text for text in key.known if HOLE not in text and is_key(text)]
        name, data = (*(next(iter(one.known), "") for one in rest), "", "")[:2]
        for text in told:
            does = written_value(text, name, data)
            if does is not None:
                self._add(entry.does, *does, shown)
        return bool(told) or entry.resource is None

    def _verb(self, entry: CallEntry, parts: Called, scope: NameScope) -> Verb:
        if entry.flags is not None and len(parts.arguments) > entry.flags:
            return "write" if _WRITES.search(text_of(parts.arguments[entry.flags])) else entry.does
        if entry.mode is not None:
            given = [one for one in parts.arguments if one.type not in KEYWORDS]
            node = given[entry.mode] if len(given) > entry.mode else keyword(parts, ("mode",))
            modes = () if node is None else scope.value(node).known
            if any(not set("wax+>c").isdisjoint(mode) for mode in modes):
                return "hide" if all(mode[:1] == "w" for mode in modes) else "write"
        return entry.does

    def _argument(self, parts: Called, place: int, entry: CallEntry) -> FollowedValue:
        scope = self.scope()
        if place == RECEIVER:
            return UNKNOWN if parts.receiver is None else scope.value(parts.receiver)
        plain = [one for one in parts.arguments if one.type not in KEYWORDS]
        if place < len(plain):
            return scope.value(plain[place])
        named = keyword(parts, entry.keywords)
        return UNKNOWN if named is None else scope.value(named)

    def _from_here(self, path: str) -> str:
        """A path from the folder that the program has gone to."""
        is_full = path[:1] in ("/", "~", "\\") or path[1:2] == ":"
        return path if is_full or not self._folder else f"{self._folder.rstrip('/')}/{path}"

    def _touch(self, verb: Verb, path: str, scope: EffectScope, shown: str) -> None:
        path = self._from_here(path.removeprefix("file://").rstrip("\0"))
        if verb == "hide":  # what is opened to be written anew is emptied first
            if (tampering_write(path.replace("*", "x"), "") or ("", ""))[0] == "shell.hides-traces":
                self._add("hide", "log", "one", path, shown)
            verb = "write"
        if verb == "write":
            self._brought[path] = self._brought.get(path, 0) + 1
        folder = place_of(path.partition("/*")[0] or "/") if verb == "delete" and "/*" in path else None
        place = place_of(path) or folder
        if folder is not None and folder.whole:
            self._add("delete", folder.resource, "all", path, shown)
            return
        secret = is_secret_file(path) or ("*" in path and is_any_secret(path))
        if verb in ("read", "expose") and secret and not path.rpartition("/")[2].startswith(".env"):
            self._add(verb, "credential", "one", path, shown)
            return
        if verb == "expose":  # to be read: only a secret is not for everybody, and what a whole folder may hold
            if place is not None and place.whole:
                self._add(verb, place.resource, "all", path, shown)
            return
        if verb == "write" and path.startswith("\\\\"):  # a folder that another machine shares
            reached = host_place(path.strip("\\").partition("\\")[0])
            if reached is not None:
                self._add("send", reached, "one", path, shown)
                return
        if place is None or (verb == "read" and place.resource == "account" and path.startswith("/")):
            self._add(verb, "file", scope, path, shown)
            return
        if scope == "one" and "*" in path:
            scope = "many"
        if scope == "all" and not place.whole:
            scope = "many"
        self._add(verb, place.resource, scope, path, shown)

    def _add(self, verb: Verb, resource: Resource, scope: EffectScope, value: str, shown: str) -> None:
        before = self._found.get((verb, resource))
        if before is None:
            self._found[verb, resource] = (scope, {value: None}, shown)
            return
        wider = max(before[0], scope, key=("one", "many", "all").index)
        before[1][value] = None
        self._found[verb, resource] = (wider, before[1], before[2] if wider == before[0] else shown)

    def _run(self, entry: CallEntry, parts: Called, scope: NameScope) -> None:
        plain = [one for one in parts.arguments if one.type not in KEYWORDS]
        first = entry.of[0]
        if first == RECEIVER:
            plain, first = [] if parts.receiver is None else [parts.receiver], 0
        if entry.runs == "started":
            for owner in plain[first : first + 1]:
                for line in started_by_members(owner, scope):
                    self._command(line)
            return
        if entry.runs == "file":
            for text in (text for one in plain[first : first + 1] for text in scope.value(one).known):
                self._load(text)
            return
        if first >= len(plain):
            told = [keyword(parts, (name,)) for name in entry.keywords]
            plain, first = [one for one in told if one is not None], 0
            if not plain:
                return
        first += entry.runs == "rest" and plain[first].type in ("hash", "object") and len(plain) > first + 1
        value = scope.value(plain[first])
        if entry.runs == "code":
            texts = [text for place in entry.of for text in self._argument(parts, place, entry).known]
            self._programs.update(dict.fromkeys(text for text in texts if HOLE not in text))
            return
        if entry.runs == "statement":
            stated = (*value.known, *scope.named(f"{text_of(plain[first])}.CommandText").known)
            found = (text.replace(HOLE, "VALUE").replace("%s", "NULL") for text in stated)
            self._statements.update(dict.fromkeys(text for text in found if is_grave(text, self._text)))
            return
        if entry.runs == "line":
            pieces = [(*scope.value(one).known, "VALUE")[0] for one in plain[first:]]
            self._command(" ".join(pieces))
            return
        paired = len(plain) > first + 1 and plain[first + 1].type not in ("object", "arrow_function")
        further = plain[first + 1] if paired else keyword(parts, ("args",))
        given = UNKNOWN if further is None or entry.runs != "split" else scope.value(further)
        words = [scope.value(one) for one in plain[first:]]
        program = keyword(parts, ("executable",)) if words[0].items else None
        if program is not None:
            words[0] = words[0]._replace(items=(scope.value(program), *words[0].items[1:]))
        for line in started(entry.runs, words, given):
            self._command(as_started(f"{entry.program} {line}".lstrip(), parts, scope))

    def _command(self, text: str) -> None:
        first = program_file(text)
        brought = first in self._brought or (len(first) > 1 and first.removeprefix("./") in self._brought)
        if brought and FETCHES.search(self._text()):
            self._add("receive", "program", "one", first, text[:_SHOWN])
        self._commands[text.replace(HOLE, "VALUE")] = None

    def _load(self, path: str) -> None:
        """Take a file of code that the program runs in itself: from an address, or one that it has just brought."""
        brought = any(one in self._brought for one in (path, path.removeprefix("./"), f"{path}.rb"))
        if is_from_afar(path) or (brought and FETCHES.search(self._text())):
            self._found.setdefault(("receive", "program"), ("one", {path: None}, path[:_SHOWN]))
