"""The names of a program: its own functions and classes, what it imports, and what each name is bound to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import (
    LAMBDAS,
    BoundName,
    bound,
    defaults,
    members_of,
    name_of,
    parameters,
    parts_of,
    patterns,
    rest_of,
)
from aegis.detect.languages.syntax import (
    PLAIN,
    Called,
    CodeLanguage,
    arguments_of,
    called,
    canonical,
    text_of,
)

_REQUIRED: Final = Lazy(
    r"""^(?:await\s+)?(?:require|import)\(\s*['"`](?:node:)?([\w./@-]{1,60})['"`]\s*\)([\w.]{0,40})$"""
)
_PLAIN_NAME: Final = Lazy(r"^[$@]?[A-Za-z_][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*$")
_CONSTRUCTORS: Final = frozenset({"__init__", "constructor", "initialize", "__construct"})
_OWN: Final = frozenset({"self", "this", "$this", "cls", "super()", "static"})
_NEAR: Final = 2  # nodes between the body of a class and a name of its that gets a value
ADDS: Final = frozenset(
    {"append", "push", "unshift", "prepend", "extend", "Add", "add", "Append", "AppendLine", "concat", "arg", "args"}
)
_FRONTS: Final = frozenset({"unshift", "prepend"})
_WRITES: Final = frozenset({"WriteString", "WriteByte", "WriteRune"})  # of Go, into what is empty where it is declared
_WALKS: Final = frozenset({"Walk", "WalkDir"})
# What calls a function with each item of a list, whether that is an argument or what the function is called on.
EACH: Final = frozenset({
    "foreach", "map", "filter", "each", "select", "where", "peek", "flatmap", "removeif", "array_map", "array_walk",
    "array_filter",
    "lapply", "sapply", "vapply", "walk", "for_each", "let", "also", "use", "imap",
    "imap_unordered", "starmap", "foreachasync", "some", "every",
})  # fmt: skip
_WITH: Final = frozenset({"let", "also", "use"})  # of Kotlin, which call a function with one value
_UNNAMED: Final = ("_1", "it")  # what a block of Ruby is given that names no parameter
_FOUND_BY_PERL: Final = ("$File::Find::name", "$File::Find::dir", "$_")
_REFERENCES: Final = frozenset({
    "attribute", "member_expression", "identifier", "selector_expression", "member_access_expression",
})  # fmt: skip
_LONGEST_REFERENCE: Final = 80
_NAMED: Final = frozenset({"identifier", "name", "constant"})
_BY_NAME: Final = frozenset({"keyword_argument", "named_argument", "pair"})


_MOST_CLASSES: Final = 16
_MOST_FIELDS: Final = 64  # of all classes of a text
_MOST_GIVEN: Final = 8  # values that one of them gets
_NAMELESS: Final = frozenset({"eval_expression", "func1op_call_expression", "object_creation_expression"})
_WORD: Final = Lazy(r"[A-Za-z_]\w*")
_QUOTES: Final = "'\"`:"
_PUTS: Final = frozenset({"put", "set", "store", "setProperty", "putIfAbsent", "insert"})
_DEFINES: Final = frozenset({"define", "const_set", "setattr", "instance_variable_set"})
_MEMBERS: Final = ("self.", "this.", "$this.")
_OWN_BY_NAME: Final[frozenset[CodeLanguage]] = frozenset({"java", "csharp"})  # that name members without their owner
_ALIASED: Final = frozenset({"identifier", "expression_list"})
_ADDED_TO: Final = frozenset({"identifier", "member_access_expression", "member_expression", "attribute"})
_RECORD_MAKERS: Final = frozenset({"new", "define", "namedtuple"})
_RECORDS: Final = frozenset({"Struct.new", "Data.define", "namedtuple", "collections.namedtuple"})  # make a class
_BINDS: Final = frozenset({"partial", "bind", "method"})  # that make another function of one
_LISTS_FOR: Final = frozenset(
    {"each_child", "foreach", "glob", "each_entry", "find"}
)  # `Dir.foreach(path) { |name| ... }`


class ProgramNames:
    """What the names of one text stand for; `aliases` are those that imports bring in, `functions` its own."""

    def __init__(
        self, nodes: Mapping[str, Sequence[Node]], language: CodeLanguage, aliases: Mapping[str, str], most: int
    ):
        self._nodes = nodes
        self._language = language
        self._most = most
        self.aliases = dict(aliases)
        self.functions: dict[str, Node] = {}
        self._classes = {text_of(one.child_by_field_name("name")) for one in nodes.get("class", ())}
        self.fields: dict[str, list[str]] = defaultdict(list)  # the members of each class
        for node in nodes.get("assign", ()):
            right, left = _right(node), _left(node)
            if left is not None and right is not None and called_name(right) in _RECORD_MAKERS:
                self._take_record(text_of(left), right)
        for node in nodes.get("class", ())[:_MOST_CLASSES]:  # what a record says of its members
            self.fields[text_of(node.child_by_field_name("name"))] += members_of(node)
        self._held = dict(_held(nodes.get("class", ())))
        for node in nodes.get("function", ()):
            name = text_of(node.child_by_field_name("name"))
            is_constructor = name in _CONSTRUCTORS or node.type == "constructor_declaration"
            owner = self._held.get(node.id, "") if is_constructor else ""
            if owner:
                self.functions.setdefault(owner, node)
            elif name and node.child_by_field_name("body") is not None:  # what another library holds is declared only
                self.functions.setdefault(name, node)
        for node in nodes.get("assign", ()):
            value, name_node = _right(node), _left(node)
            if value is not None and name_node is not None and value.type in LAMBDAS:
                self.functions.setdefault(text_of(name_node)[:80], value)
        self._instances = {
            text_of(_left(node))
            for node in (nodes.get("assign", ()) if self._classes else ())
            if (right := _right(node)) is not None and self._makes_own(right)
        }
        if language in ("javascript", "typescript"):
            self._alias_modules()
        self._alias_functions()

    def _take_record(self, name: str, made: Node) -> None:
        """Take a class that a call makes of its members' names: `Struct.new(:root)`, `namedtuple("C", "root")`."""
        parts = called(made)
        owner = "" if parts.receiver is None else f"{text_of(parts.receiver)}."
        if f"{owner}{parts.name}" in _RECORDS:
            self._classes.add(name)
            told = parts.arguments[1:] if parts.name == "namedtuple" else parts.arguments
            self.fields[name] += [word for one in told for word in _WORD.findall(text_of(one)[:_LONGEST_REFERENCE])]

    def own(self, parts: Called) -> Node | None:
        """The function of the text itself that a call calls; nothing where it calls somebody else's."""
        name = parts.name.strip().lstrip("\\")
        if name == "new" and parts.receiver is not None and text_of(parts.receiver) in self._classes:  # of Ruby
            return self.functions.get(text_of(parts.receiver)) or self.functions.get(name)
        own = self.functions.get(name)
        if own is not None and own.type == "method_declaration" and own.child_by_field_name("receiver") is not None:
            return own  # of Go, where nothing but its name says so
        if parts.receiver is None or text_of(parts.receiver) in _OWN or self._is_own(parts.receiver):
            return own
        if self._language in PLAIN and (text_of(parts.receiver) in self._classes or self._language == "lua"):
            return own  # `Config::of("/etc")`, `config:path()`
        return None

    def _makes_own(self, node: Node) -> bool:
        return called_name(node) in self._classes or (
            called_name(node) == "new" and text_of(node.child_by_field_name("receiver")) in self._classes
        )

    def created(self, parts: Called) -> str | None:
        """The class of the text that a call makes an object of."""
        if not self._classes:
            return None
        name = parts.name.strip()
        if name == "new" and parts.receiver is not None:
            name = text_of(parts.receiver)
        elif parts.receiver is not None:
            return None
        return name if name in self._classes else None

    def _is_own(self, receiver: Node) -> bool:
        if not self._classes:
            return False
        if receiver.type in ("identifier", "variable_name"):
            return text_of(receiver) in self._instances
        while receiver.type == "parenthesized_expression" and receiver.named_child_count:
            receiver = receiver.named_children[0]
        return self.created(called(receiver)) is not None

    def full(self, parts: Called) -> list[str]:
        """The names under which a call may be known, the fullest first."""
        name = parts.name.strip().lstrip("\\").removeprefix("Kernel.")
        if parts.receiver is None:
            if name in self.functions:
                return []
            full = canonical(self.aliases.get(name, name).lower()).partition("<")[0]
            if parts.created:
                return [f"new {full}", full, f"new {full.rpartition('.')[2]}"]
            return [full, *_shorter(full)]
        owner = text_of(parts.receiver)
        match = _REQUIRED.match(owner) if "(" in owner else None
        if match is not None:
            owner = match.group(1).replace("/", ".") + match.group(2)
        if match is None and not _PLAIN_NAME.match(owner):
            return [f".{name.lower()}"]
        head, dot, rest = canonical(owner).partition(".")
        full = (
            f"{self.aliases.get(head, head)}{dot}{rest}.{name}".lower()
            .removeprefix("java.nio.file.")
            .removeprefix("system.io.")
        )
        return [full, *_shorter(full), f".{name.lower()}"]

    # What names are bound to

    def bounds(self) -> dict[str, list[BoundName]]:
        """Every value that a name of the text gets, in its order."""
        names: dict[str, list[BoundName]] = defaultdict(list)
        for kind in ("assign", "loop", "alias"):
            for node in self._nodes.get(kind, ()):
                owner = self._held.get(node.id, "")
                for one in bound(node):
                    plain = canonical(one.name)
                    names[plain].append(one)
                    for prefix in (owner, "self", "this", "$this", "static") if owner else ():
                        names[f"{prefix}.{plain.lstrip('$@')}"].append(one)
                    if owner:
                        self.fields[owner].append(plain.lstrip("$@"))
                    elif plain.startswith(_MEMBERS) and self._language in _OWN_BY_NAME:  # `this.root = root`
                        names[plain.partition(".")[2]].append(one)
        for node in self._nodes.get("call", ())[: self._most]:
            self._bind_parameters(node, names)
        given = [key for key in names if key.startswith((*_MEMBERS, "@"))][:_MOST_FIELDS]
        for node in list(self._nodes.get("class", ()))[:_MOST_CLASSES]:
            self._take_fields(node, given, names)
        for several in names.values():
            several.sort(key=lambda one: one.order)
        return names

    def _take_fields(self, node: Node, given: Sequence[str], names: dict[str, list[BoundName]]) -> None:
        """Add the members of a class that its functions give values to, or that are declared with its name."""
        name = text_of(node.child_by_field_name("name"))
        own = self.functions.get(name)
        for key in given if own is not None else ():
            field = key.lstrip("@").rpartition(".")[2]
            for one in names[key][:_MOST_GIVEN]:
                if own is not None and own.start_byte <= one.whole.start_byte < own.end_byte:
                    names[f"{name}.{field}"].append(one)
                    self.fields[name].append(field)

    def _bind_parameters(self, node: Node, names: dict[str, list[BoundName]]) -> None:
        """Bind the parameters of the text's own functions, and of a block that is called with each item of a list."""
        name = called_name(node)
        if name in self._classes and self._language in PLAIN:
            named, others = _apart(called(node))
            for at, field in enumerate(self.fields[name]):
                told = others[at] if at < len(others) else named.get(field)
                for key in (field, f"self.{field}", f"this.{field}", f"{name}.{field}") if told is not None else ():
                    names[key].append(BoundName(key, told or node, node, given=True))
        if name in self.functions or (name == "new" and self._classes):
            parts = called(node)
            own = self.own(parts)
            if own is not None:
                self._bind_given(own, parts, node, names)
                for parameter in parameters(own, "receiver") if parts.receiver is not None else ():
                    names[parameter].append(BoundName(parameter, parts.receiver or node, node, given=True))
        if name in _PUTS and (len(given := arguments_of(node)) == 2):  # `map.put("key", value)`
            key = f"{canonical(text_of(called(node).receiver))}[{text_of(given[0])[:80].strip(_QUOTES)}]"
            names[key].append(BoundName(key, given[1], node))
        if name in _DEFINES and len(given := arguments_of(node)) > 1:  # `define("ROOT", "/etc")`
            key = text_of(given[0]).strip(_QUOTES)
            names[key].append(BoundName(key, given[1], node, given=True))
        if name == "push" and self._language == "perl":
            given = arguments_of(node)
            for one in given[1:]:
                listed = text_of(given[0])
                names[listed].append(BoundName(listed, one, node, adds=True, begins="list"))
            return
        if name in ADDS or name in _WRITES:  # `parts.append("x")`, `text.append("x").append("y")`
            parts = called(node)
            owner = parts.receiver
            while owner is not None and owner.type not in _ADDED_TO and called_name(owner) in ADDS:
                owner = called(owner).receiver
            if owner is not None and owner.type in _ADDED_TO and len(parts.arguments) == 1:
                listed = canonical(text_of(owner)[:_LONGEST_REFERENCE])
                begins: Literal["", "text", "list"] = (
                    "text" if name in _WRITES else "" if owner.type == "identifier" else "list"
                )
                front = name in _FRONTS
                names[listed].append(BoundName(listed, parts.arguments[0], node, adds=True, begins=begins, front=front))
        block = node.child_by_field_name("block")
        if block is not None:
            receiver = node if name in _LISTS_FOR and arguments_of(node) else node.child_by_field_name("receiver")
            given_names = parameters(block)[:2]
            for at, parameter in enumerate(given_names or _UNNAMED):
                if receiver is not None:
                    part = str(at) if len(given_names) > 1 else ""
                    names[parameter].append(
                        BoundName(
                            parameter,
                            receiver,
                            node,
                            each=name not in _WITH,
                            part=part,
                            whole_too=not (at and given_names),
                        )
                    )
        elif name in _WALKS and self._language == "go":  # what is gone over is what each call of the function is given
            parts = called(node)
            if len(parts.arguments) > 1 and parts.arguments[1].type in LAMBDAS:
                for parameter in parameters(parts.arguments[1])[:1]:
                    names[parameter].append(BoundName(parameter, node, node, each=True))
        elif name in ("find", "finddepth") and self._language == "perl":
            for folder in arguments_of(node)[1:2]:
                for found in _FOUND_BY_PERL:
                    names[found].append(BoundName(found, folder, node))
        elif name.lower() in EACH:
            self._bind_each(called(node), node, names)

    def _bind_each(self, parts: Called, node: Node, names: dict[str, list[BoundName]]) -> None:
        """Bind what a function of the text, named or written out, is called with for each item of a list."""
        for at, one in enumerate(parts.arguments[:2]):
            own = one if one.type in LAMBDAS else self.functions.get(text_of(one)) if one.type in _NAMED else None
            if own is None:
                continue
            others = [other for other in parts.arguments[:2] if other is not parts.arguments[at]]
            listed = others[0] if others and others[0].type not in LAMBDAS else parts.receiver
            if listed is not None:
                each = parts.name not in _WITH
                for parameter in parameters(own)[:1]:
                    names[parameter].append(BoundName(parameter, listed, node, each=each))
                for one in patterns(own)[:1]:  # `([key, value]) => ...`
                    for part in parts_of(one):
                        name = name_of(part.node)
                        names[name].append(BoundName(name, listed, node, each=each, part=part.part))
            return

    def _bind_given(self, own: Node, parts: Called, node: Node, names: dict[str, list[BoundName]]) -> None:
        """Bind the parameters of a function to what one call gives them, else to what stands for nothing."""
        named, plain = _apart(parts)
        for at, (parameter, default) in enumerate(defaults(own)):
            given = plain[at] if at < len(plain) else named.get(parameter.lstrip("$"), default)
            if given is not None:
                names[parameter].append(BoundName(parameter, given, node, given=True))
                if self._language == "php":  # what a constructor may promote to a member
                    member = f"$this.{parameter.lstrip('$')}"
                    names[member].append(BoundName(member, given, node, given=True))
        for at, pattern in enumerate(patterns(own)):  # `({root, name}) => ...`
            for part in parts_of(pattern) if at < len(plain) else ():
                name = name_of(part.node)
                names[name].append(BoundName(name, plain[at], node, given=True, part=part.part))
        if self._language == "perl" and (every := node.child_by_field_name("arguments")) is not None:
            names["@_"].append(BoundName("@_", every, node, given=True))
        if (rest := rest_of(own)) and (every := node.child_by_field_name("arguments")) is not None:
            behind = f"{len(parameters(own))}:".removeprefix("0:")
            names[rest].append(BoundName(rest, every, node, given=True, part=behind))

    # What imports bring in

    def _alias_functions(self) -> None:
        """Follow functions of libraries that are given another name: `wipe = shutil.rmtree`, `partial(os.remove)`."""
        for node in self._nodes.get("assign", ()):
            left, right = _left(node), _right(node)
            if left is None or right is None or left.type not in _ALIASED:
                continue
            if right.type in ("call", "call_expression") and called_name(right) in _BINDS:
                parts = called(right)
                right = parts.receiver if called_name(right) == "bind" else next(iter(parts.arguments), right)
                if right is not None and parts.name == "method" and parts.receiver is not None:  # of Ruby
                    method = f"{canonical(text_of(parts.receiver))}.{text_of(right).strip(':')}"
                    self.aliases.setdefault(text_of(left), method)
                    continue
            if (
                right is not None
                and right.type in _REFERENCES
                and right.end_byte - right.start_byte <= _LONGEST_REFERENCE
            ):
                head, dot, rest = canonical(text_of(right)).partition(".")
                name = text_of(left)
                if dot or head in _LOADS or head in self.aliases:
                    self.aliases.setdefault(name, f"{self.aliases.get(head, head)}{dot}{rest}")

    def _alias_modules(self) -> None:
        """What names of other modules stand for: `const {rmSync: rm} = require('fs')`, `import {rm as r} from 'fs'`."""
        for node in self._nodes.get("import", ()):
            source = node.child_by_field_name("source")
            if source is not None:
                self._import(node, text_of(source).strip("'\"`").removeprefix("node:").replace("/", "."))
        for node in self._nodes.get("assign", ()):
            right, left = _right(node), _left(node)
            if right is None or left is None or right.end_byte - right.start_byte > 120:
                continue
            match = _REQUIRED.match(text_of(right))
            if match is None:
                continue
            module = match.group(1).replace("/", ".") + match.group(2)
            if left.type == "identifier":
                self.aliases[text_of(left)] = module
            for member in left.named_children if left.type == "object_pattern" else ():
                key, value = member.child_by_field_name("key"), member.child_by_field_name("value")
                self.aliases[text_of(value or member)] = f"{module}.{text_of(key or member)}"

    def _import(self, node: Node, module: str) -> None:
        for clause in node.named_children:
            for one in clause.named_children if clause.type == "import_clause" else ():
                if one.type == "identifier":
                    self.aliases[text_of(one)] = module
                elif one.type == "namespace_import" and one.named_child_count:
                    self.aliases[text_of(one.named_children[-1])] = module
                elif one.type == "named_imports":
                    for member in one.named_children:
                        name, alias = member.child_by_field_name("name"), member.child_by_field_name("alias")
                        self.aliases[text_of(alias or name)] = f"{module}.{text_of(name)}"

    def loaded(self) -> Iterator[tuple[str, Node]]:
        """Each name that a module is loaded into on the spot, and the argument that says which."""
        for node in self._nodes.get("assign", ()):
            right, left = _right(node), _left(node)
            if right is not None and left is not None and right.type.startswith("call") and left.type == "identifier":
                argument = loaded_module(right, self.aliases)
                if argument is not None:
                    yield text_of(left), argument
        for node in self._nodes.get("call", ())[: self._most] if self._language in ("javascript", "typescript") else ():
            function = node.child_by_field_name("function") if called_name(node) == "then" else None
            owner = next(iter(function.named_children), None) if function is not None else None
            argument = None if owner is None else loaded_module(owner, self.aliases)
            given = () if argument is None else arguments_of(node)[:1]
            if argument is not None and given and given[0].type in LAMBDAS:
                for name in parameters(given[0])[:1]:
                    yield name, argument


_LOADS: Final = frozenset({"__import__", "import_module", "importlib.import_module", "require", "import"})
_LONGEST_LOADER: Final = 24


def loaded_module(node: Node, aliases: Mapping[str, str]) -> Node | None:
    """The argument that says which module a call loads; nothing of every other call."""
    function = node.child_by_field_name("function")
    if function is None or function.end_byte - function.start_byte > _LONGEST_LOADER:
        return None
    name = text_of(function)
    return next(iter(arguments_of(node)), None) if aliases.get(name, name) in _LOADS else None


def called_name(node: Node) -> str:
    """The last part of the name of what a call calls, in as few steps as that takes; empty for none."""
    function = (
        node.child_by_field_name("function")
        or node.child_by_field_name("constructor")
        or node.child_by_field_name("method")
        or node.child_by_field_name("name")
        or node.child_by_field_name("type")
    )
    if function is None:
        return called(node).name if node.type in _NAMELESS else ""
    if function.named_child_count and function.type not in ("identifier", "name"):
        return text_of(function.named_children[-1])
    return text_of(function)


def _left(node: Node) -> Node | None:
    left = node.child_by_field_name("name") or node.child_by_field_name("left")
    single = left is not None and left.type in _SINGLE and left.named_child_count == 1
    return left.named_children[0] if left is not None and single else left


def _right(node: Node) -> Node | None:
    right = node.child_by_field_name("value") or node.child_by_field_name("right")
    if right is None and node.type == "variable_declarator" and node.named_child_count > 1:
        return node.named_children[-1]
    single = right is not None and right.type in _SINGLE and right.named_child_count == 1
    return right.named_children[0] if right is not None and single else right


_SINGLE: Final = frozenset({"expression_list", "variable_declaration"})


def _held(classes: Iterable[Node]) -> Iterator[tuple[int, str]]:
    """What stands in the body of each class outside of its functions, these included, with the class's name."""
    for one in classes:
        name = text_of(one.child_by_field_name("name"))
        body = one.child_by_field_name("body")
        waiting = [(child, 0) for child in (one.named_children if body is None else body.named_children)]
        for node, depth in waiting:
            yield node.id, name
            if depth < _NEAR and "function" not in node.type and "method" not in node.type:
                waiting.extend((child, depth + 1) for child in node.named_children)


def _apart(parts: Called) -> tuple[dict[str, Node], Sequence[Node]]:
    """The arguments of a call that have names, and the others."""
    named = {
        text_of(one.named_children[0]).strip(":"): one.named_children[-1]
        for one in parts.arguments
        if one.type in _BY_NAME and one.named_child_count > 1
    }
    return named, [one for one in parts.arguments if one.type not in _BY_NAME] if named else parts.arguments


def _shorter(full: str) -> list[str]:
    parts = full.split(".")
    return [f"{parts[-2]}.{parts[-1]}"] if len(parts) > 2 else []


def add_aliases(node: Node, aliases: dict[str, str]) -> None:
    """Add the names that an import brings in, with what they stand for: `from os import system as s`."""
    module = node.child_by_field_name("module_name")
    prefix = f"{text_of(module)}." if module is not None else ""
    for child in node.named_children:
        if child.type == "aliased_import":
            target, alias = child.child_by_field_name("name"), child.child_by_field_name("alias")
            if target is not None and alias is not None:
                aliases[text_of(alias)] = prefix + text_of(target)
        elif prefix and child.type == "dotted_name" and child != module:
            aliases[text_of(child)] = prefix + text_of(child)
