"""What the calls of a program do to which resources, with their arguments followed to constants."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.effects import EffectScope, Resource, ResourceEffect, Verb
from aegis.core.patterns import Lazy
from aegis.detect.languages.calls import RECEIVER, CallEntry, KnownCalls, Makes, calls_of
from aegis.detect.languages.made import make, variable
from aegis.detect.languages.requests import (
    FETCHES,
    GRAVE_STATEMENT,
    SPEAKS_OF_CLOUD,
    cloud_command,
    cloud_operations,
    is_whole,
    looked_up,
    says,
    squashed,
)
from aegis.detect.languages.syntax import (
    SHELLS_OUT,
    BoundName,
    Called,
    CodeLanguage,
    arguments_of,
    bound,
    called,
    text_of,
)
from aegis.detect.languages.values import HOLE, MAX_TEXTS, UNKNOWN, FollowedValue, NameScope
from aegis.detect.paths import KNOWN_SECRETS, is_secret_file, matched
from aegis.detect.resources import place_of
from aegis.detect.shell.tamper import tampering_write

MOST_CALLS: Final = 2_000  # of one text that are looked at
_SHOWN: Final = 80
_KEYWORDS: Final = frozenset({"keyword_argument", "named_argument", "pair", "argument"})
_WRITES: Final = Lazy(r"WRONLY|RDWR|CREAT|TRUNC|APPEND")
_REQUIRED: Final = Lazy(
    r"""^(?:await\s+)?(?:require|import)\(\s*['"`](?:node:)?([\w./@-]{1,60})['"`]\s*\)([\w.]{0,40})$"""
)
_PLAIN_NAME: Final = Lazy(r"^[$@]?[A-Za-z_][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*$")
_PARAMETER: Final = frozenset({
    "identifier", "default_parameter", "typed_parameter", "typed_default_parameter", "simple_parameter",
    "formal_parameter", "parameter", "parameter_declaration", "required_parameter", "optional_parameter",
    "assignment_pattern", "keyword_parameter",
})  # fmt: skip
_JOINS_PLAINLY: Final = frozenset({"go", "ruby", "java"})  # that put paths behind each other, whatever they begin with


class ProgramDeeds(NamedTuple):
    """What a program does: effects, the command lines, programs in its own language and statements that it runs.

    A request to a cloud is the command line that makes the same request.
    """

    effects: list[ResourceEffect]
    commands: list[str]
    programs: list[str]
    statements: list[str]


def deeds_of(nodes: Mapping[str, Sequence[Node]], language: CodeLanguage, aliases: Mapping[str, str]) -> ProgramDeeds:
    """The deeds of a text by what its grammar captured."""
    program = _Program(nodes, language, aliases)
    for node in list(nodes.get("call", ()))[:MOST_CALLS]:
        program.take(node)
    return program.deeds()


class _Program:
    def __init__(self, nodes: Mapping[str, Sequence[Node]], language: CodeLanguage, aliases: Mapping[str, str]):
        self._known: KnownCalls = calls_of(language)
        self._language = language
        self._aliases = dict(aliases)
        self._nodes = nodes
        self._scope: NameScope | None = None
        self._functions: dict[str, Node] = {}
        self._found: dict[tuple[Verb, Resource], tuple[EffectScope, dict[str, None], str]] = {}
        self._commands: dict[str, None] = {}
        self._programs: dict[str, None] = {}
        self._statements: dict[str, None] = {}
        self._brought: set[str] = set()  # files that the program writes
        self._asks_cloud: bool | None = None
        for node in nodes.get("function", ()):
            name = text_of(node.child_by_field_name("name"))
            if name:
                self._functions.setdefault(name, node)
        self._alias_names()
        ends = self._known.ends
        self._ends = ends | {
            name.lower() for name, target in self._aliases.items() if target.rpartition(".")[2].lower() in ends
        }

    def deeds(self) -> ProgramDeeds:
        effects = [
            ResourceEffect(
                verb, resource, "many" if scope == "one" and len(values) > 1 else scope, tuple(values), "", shown
            )
            for (verb, resource), (scope, values, shown) in self._found.items()
        ]
        return ProgramDeeds(effects, list(self._commands), list(self._programs), list(self._statements))

    def take(self, node: Node) -> None:
        if node.type in SHELLS_OUT:
            for text in self.scope().value(node).known:
                self._command(text)
            return
        if self._language == "python" and self._looks_up(node):
            return
        last = _last_name(node, self._language)
        words = cloud_operations().get(squashed(last))
        if words is not None and self._is_of_cloud():
            self._command(cloud_command(words, called(node).arguments, self.scope()))
        if last not in self._ends:
            return
        parts = called(node)
        for name in self._names(parts):
            entries = self._known.does.get(name)
            if entries is not None:
                for entry in entries:
                    self._do(entry, parts, node)
                return

    def _looks_up(self, node: Node) -> bool:
        """Take a call of what is looked up by its name: `getattr(os, "sys" + "tem")(line)`; false for every other."""
        function = node.child_by_field_name("function")
        names = None if function is None else looked_up(function, self.scope, self._aliases)
        if names is None:
            return False
        self._add("execute", "program", "one", text_of(function)[:_SHOWN], text_of(node)[:_SHOWN])
        for name in names:
            for entry in self._known.does.get(name, ()):
                self._do(entry, Called(None, name, arguments_of(node)), node)
        return True

    def _is_of_cloud(self) -> bool:
        """Whether the text speaks of the cloud whose operations have such names."""
        if self._asks_cloud is None:
            self._asks_cloud = SPEAKS_OF_CLOUD.search(self._text()) is not None
        return self._asks_cloud

    def _text(self) -> str:
        node = next((one for several in self._nodes.values() for one in several), None)
        while node is not None and node.parent is not None:
            node = node.parent
        return text_of(node)

    # The names of a program

    def scope(self) -> NameScope:
        """The names of the text, collected when the first of them is asked for."""
        if self._scope is None:
            names: dict[str, list[BoundName]] = defaultdict(list)
            for kind in ("assign", "loop", "alias"):
                for node in self._nodes.get(kind, ()):
                    for one in bound(node):
                        names[one.name].append(one)
            for node in self._nodes.get("call", ())[:MOST_CALLS]:
                self._bind_parameters(node, names)
            for several in names.values():
                several.sort(key=lambda one: one.whole.start_byte)
            self._scope = NameScope(names, self._made)
        return self._scope

    def _bind_parameters(self, node: Node, names: dict[str, list[BoundName]]) -> None:
        """Bind the parameters of the text's own functions, and of a block that is called with each item of a list."""
        field = (
            node.child_by_field_name("function")
            or node.child_by_field_name("method")
            or node.child_by_field_name("name")
        )
        own = (
            self._functions.get(text_of(field)) if field is not None and field.type in ("identifier", "name") else None
        )
        if own is not None:
            for parameter, argument in zip(_parameters(own), arguments_of(node), strict=False):
                names[parameter].append(BoundName(parameter, argument, node))
        block = node.child_by_field_name("block")
        if block is not None:
            receiver = node.child_by_field_name("receiver")
            for parameter in _parameters(block)[:1]:
                if receiver is not None:
                    names[parameter].append(BoundName(parameter, receiver, node, each=True))
        elif self._language in ("javascript", "typescript"):
            given = arguments_of(node)
            parts = called(node) if given and given[0].type in ("arrow_function", "function_expression") else None
            if parts is not None and parts.receiver is not None and parts.name in ("forEach", "map", "filter"):
                for parameter in _parameters(given[0])[:1]:
                    names[parameter].append(BoundName(parameter, parts.receiver, node, each=True))

    def _alias_names(self) -> None:
        """What names of other modules stand for: `const {rmSync: rm} = require('fs')`, `import {rm as r} from 'fs'`."""
        if self._language not in ("javascript", "typescript"):
            return
        for node in self._nodes.get("import", ()):
            source = node.child_by_field_name("source")
            if source is not None:
                self._import(node, text_of(source).strip("'\"`").removeprefix("node:").replace("/", "."))
        for node in self._nodes.get("assign", ()):
            right = node.child_by_field_name("value") or node.child_by_field_name("right")
            left = node.child_by_field_name("name") or node.child_by_field_name("left")
            if right is None or left is None or right.end_byte - right.start_byte > 120:
                continue
            match = _REQUIRED.match(text_of(right))
            if match is None:
                continue
            module = match.group(1).replace("/", ".") + match.group(2)
            if left.type == "identifier":
                self._aliases[text_of(left)] = module
            for member in left.named_children if left.type == "object_pattern" else ():
                key, value = member.child_by_field_name("key"), member.child_by_field_name("value")
                self._aliases[text_of(value or member)] = f"{module}.{text_of(key or member)}"

    def _import(self, node: Node, module: str) -> None:
        for clause in node.named_children:
            for one in clause.named_children if clause.type == "import_clause" else ():
                if one.type == "identifier":
                    self._aliases[text_of(one)] = module
                elif one.type == "namespace_import":
                    self._aliases[text_of(one.named_children[-1])] = module
                elif one.type == "named_imports":
                    for member in one.named_children:
                        name, alias = member.child_by_field_name("name"), member.child_by_field_name("alias")
                        self._aliases[text_of(alias or name)] = f"{module}.{text_of(name)}"

    def _names(self, parts: Called) -> list[str]:
        """The names under which a call may be known, the fullest first."""
        name = parts.name.strip().lstrip("\\").removeprefix("Kernel.")
        if parts.receiver is None:
            if name in self._functions:
                return []
            full = self._aliases.get(name, name).lower()
            full = full.replace("::", ".")
            if parts.created:
                return [f"new {full}", full, f"new {full.rpartition('.')[2]}"]
            return [full, *_shorter(full)]
        owner = text_of(parts.receiver)
        match = _REQUIRED.match(owner) if "(" in owner else None
        if match is not None:
            owner = match.group(1).replace("/", ".") + match.group(2)
        if match is None and not _PLAIN_NAME.match(owner):
            return [f".{name.lower()}"]
        head, dot, rest = owner.replace("::", ".").replace("->", ".").replace("?.", ".").partition(".")
        full = (
            f"{self._aliases.get(head, head)}{dot}{rest}.{name}".lower()
            .removeprefix("java.nio.file.")
            .removeprefix("system.io.")
        )
        return [full, *_shorter(full), f".{name.lower()}"]

    # What calls make

    def _made(self, parts: Called, scope: NameScope) -> FollowedValue | None:
        for name in self._names(parts):
            makes = self._known.makes.get(name)
            if makes is not None:
                return self._make(makes, parts, scope, method=name.startswith("."))
        if parts.receiver is None and parts.name in self._functions:
            body = self._functions[parts.name].child_by_field_name("body")
            last = body.named_children[-1] if body is not None and body.named_child_count else None
            if last is not None and last.type == "return_statement" and last.named_child_count:
                return scope.value(last.named_children[0], 6)
        return None

    def _make(self, makes: Makes, parts: Called, scope: NameScope, *, method: bool) -> FollowedValue:
        given = [scope.value(argument) for argument in parts.arguments if argument.type not in _KEYWORDS]
        every = [scope.value(parts.receiver), *given] if method and parts.receiver is not None else given
        if makes == "environment":
            return variable((parts.name,) if not parts.arguments else every[0].known, given[1:2])
        plainly = self._language in _JOINS_PLAINLY or self._names(parts)[0].endswith("path.join")
        return make(makes, every, plainly=plainly and self._language != "python", method=method)

    # What calls do

    def _do(self, entry: CallEntry, parts: Called, node: Node) -> None:
        if entry.on and not any(word in text_of(parts.receiver).lower() for word in entry.on):
            return
        if entry.says and not says(entry.says, parts):
            return
        scope = self.scope()
        if entry.runs is not None:
            self._run(entry, parts, scope)
            return
        shown = text_of(node)[:_SHOWN]
        if entry.empty is not None and not _is_empty(parts.arguments, entry.empty):
            return
        if entry.resource is not None:
            values = [text for place in entry.of for text in self._argument(parts, place, entry).known]
            if entry.everything:
                if any(value in entry.everything for value in values):
                    self._add(entry.does, entry.resource, "all", values[0], shown)
            else:
                self._add(entry.does, entry.resource, entry.scope, values[0] if values else parts.name, shown)
            return
        if entry.paths and len(parts.arguments) > 1:
            return
        verb = self._verb(entry, parts, scope)
        for place in entry.of:
            for text in self._argument(parts, place, entry).every:
                path = text
                if entry.inline_mode:
                    if len(parts.arguments) > 2 or not text.startswith((">", "<")):
                        continue
                    verb, path = ("write" if text.startswith(">") else "read"), text.lstrip("<> ")
                if not entry.paths or "/" in path or "\\" in path or path.startswith("~"):
                    self._touch(verb, path, entry.scope, shown)

    def _verb(self, entry: CallEntry, parts: Called, scope: NameScope) -> Verb:
        if entry.flags is not None and len(parts.arguments) > entry.flags:
            return "write" if _WRITES.search(text_of(parts.arguments[entry.flags])) else entry.does
        if entry.mode is not None:
            given = [one for one in parts.arguments if one.type not in _KEYWORDS]
            node = given[entry.mode] if len(given) > entry.mode else self._keyword(parts, ("mode",))
            modes = () if node is None else scope.value(node).known
            if any(not set("wax+>c").isdisjoint(mode) for mode in modes):
                return "hide" if all(mode[:1] == "w" for mode in modes) else "write"
        return entry.does

    def _argument(self, parts: Called, place: int, entry: CallEntry) -> FollowedValue:
        scope = self.scope()
        if place == RECEIVER:
            return UNKNOWN if parts.receiver is None else scope.value(parts.receiver)
        plain = [one for one in parts.arguments if one.type not in _KEYWORDS]
        if place < len(plain):
            return scope.value(plain[place])
        named = self._keyword(parts, entry.keywords)
        return UNKNOWN if named is None else scope.value(named)

    def _keyword(self, parts: Called, names: Sequence[str]) -> Node | None:
        for one in parts.arguments:
            if (
                one.type in _KEYWORDS
                and one.named_child_count > 1
                and text_of(one.named_children[0]).strip(":") in names
            ):
                return one.named_children[-1]
        return None

    def _touch(self, verb: Verb, path: str, scope: EffectScope, shown: str) -> None:
        if verb == "hide":  # what is opened to be written anew is emptied first
            if (tampering_write(path, "") or ("", ""))[0] == "shell.hides-traces":
                self._add("hide", "log", "one", path, shown)
            verb = "write"
        place = place_of(path)
        if verb == "write":
            self._brought.add(path)
        if verb == "delete" and "/*" in path and is_whole(path.partition("/*")[0] or "/"):
            self._add("delete", "home" if path[:1] == "~" else "system-file", "all", path, shown)
            return
        secret = is_secret_file(path) or ("*" in path and any(True for _ in matched(path, KNOWN_SECRETS)))
        if verb == "read" and secret and not path.rpartition("/")[2].startswith(".env"):
            self._add("read", "credential", "one", path, shown)
            return
        if place is None:
            self._add(verb, "file", scope, path, shown)
            return
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
        plain = [one for one in parts.arguments if one.type not in _KEYWORDS]
        first = entry.of[0]
        if first >= len(plain):
            named = self._keyword(parts, entry.keywords)
            plain, first = ([named] if named is not None else []), 0
            if not plain:
                return
        value = scope.value(plain[first])
        if entry.runs == "code":
            self._programs.update(dict.fromkeys(text for text in value.known if HOLE not in text))
            return
        if entry.runs == "statement":
            found = (text.replace(HOLE, "VALUE") for text in value.known)
            self._statements.update(dict.fromkeys(text for text in found if GRAVE_STATEMENT.search(text)))
            return
        if entry.runs == "command":
            for text in value.known:
                self._command(text)
            if value.items:
                self._words(value.items)
        elif entry.runs == "words":
            if value.items:
                self._words(value.items)
            else:
                for text in value.known:
                    self._command(text)
        elif entry.runs == "split":
            rest = (
                scope.value(plain[1]).items
                if len(plain) > 1 and plain[1].type not in ("object", "arrow_function")
                else ()
            )
            if rest:
                self._words((value, *rest))
            else:
                for text in value.known:
                    self._command(text)
        elif entry.runs == "rest":
            words = [scope.value(one) for one in plain[first:]]
            words = [item for word in words for item in (word.items or (word,))]
            if len(words) > 1:
                self._words(words)
            else:
                for text in words[0].known if words else ():
                    self._command(text)

    def _command(self, text: str) -> None:
        first = text.split(None, 1)[0].strip("'\"") if text.strip() else ""
        brought = first in self._brought or (len(first) > 1 and first.removeprefix("./") in self._brought)
        if brought and FETCHES.search(self._text()):
            self._add("receive", "program", "one", first, text[:_SHOWN])
        self._commands[text.replace(HOLE, "VALUE")] = None

    def _words(self, words: Sequence[FollowedValue]) -> None:
        """Command lines of words, each of them the first that it may be; the last ones as all that they may be."""
        lines = [""]
        for word in words:
            chosen = [text.replace(HOLE, "VALUE") for text in (word.texts or (HOLE,))]
            lines = [f"{line} {shlex.quote(text)}".strip() for line in lines for text in chosen][:MAX_TEXTS]
        for line in lines:
            self._command(line)


def _shorter(full: str) -> list[str]:
    parts = full.split(".")
    return [f"{parts[-2]}.{parts[-1]}"] if len(parts) > 2 else []


def _is_empty(arguments: Sequence[Node], place: int) -> bool:
    """Whether a condition selects everything: an object without members."""
    if place >= len(arguments):
        return False
    node = arguments[place]
    return node.type in ("object", "dictionary", "hash") and not node.named_child_count


def _parameters(function: Node) -> list[str]:
    """The names of the parameters of a function or a block, in their order."""
    listed = function.child_by_field_name("parameters") or function.child_by_field_name("parameter")
    if listed is None:
        return []
    if listed.type == "identifier":
        return [text_of(listed)]
    found = []
    for one in listed.named_children:
        if one.type not in _PARAMETER and one.type != "variable_name":
            continue
        name = (
            one.child_by_field_name("name")
            or one.child_by_field_name("left")
            or one.child_by_field_name("pattern")
            or one
        )
        if name.type not in ("identifier", "variable_name") and name.named_child_count:
            name = next((child for child in name.named_children if child.type in ("identifier", "variable_name")), name)
        found.append(text_of(name))
    if found[:1] in (["self"], ["cls"]):
        found = found[1:]
    return found


def _last_name(node: Node, language: CodeLanguage) -> str:
    """The last part of the name of what is called, in small letters, in as few steps as that takes."""
    function = (
        node.child_by_field_name("function")
        or node.child_by_field_name("constructor")
        or node.child_by_field_name("method")
        or node.child_by_field_name("name")
        or node.child_by_field_name("type")
    )
    if function is None:
        return ""
    last = (
        function.named_children[-1]
        if function.named_child_count and function.type not in ("identifier", "name")
        else function
    )
    return text_of(last).lower()
