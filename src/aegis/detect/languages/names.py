"""The names of a program: its own functions and classes, what it imports, and what each name is bound to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.aliases import (
    LONGEST_REFERENCE,
    REFERENCES,
    REQUIRED,
    alias_functions,
    alias_modules,
    loaded,
)
from aegis.detect.languages.bindings import (
    LAMBDAS,
    BoundName,
    bound,
    called_name,
    defaults,
    left_of,
    name_of,
    parameters,
    parts_of,
    patterns,
    rest_of,
    right_of,
)
from aegis.detect.languages.followed import unquoted
from aegis.detect.languages.syntax import (
    PLAIN,
    Called,
    CodeLanguage,
    arguments_of,
    called,
    canonical,
    code_words,
    text_of,
    unwrapped,
)

_PLAIN_NAME: Final = Lazy(r"^[$@]?[A-Za-z_][\w$]*(?:(?:\.|::|->|\?\.)[A-Za-z_$][\w$]*)*$")
_CONSTRUCTORS: Final = frozenset({"__init__", "constructor", "initialize", "__construct"})
_OWN: Final = frozenset({"self", "this", "$this", "cls", "super()", "static"})
_NEAR: Final = 2  # nodes between the body of a class and a name of its that gets a value
ADDS: Final = frozenset({
    "append", "push", "unshift", "prepend", "extend", "Add", "add", "addAll", "AddRange", "Append", "insert",
    "appendleft", "AppendLine", "concat", "arg", "args",
})  # fmt: skip
BUILDS: Final[Mapping[str, Literal["text", "list"]]] = {"buildList": "list", "buildString": "text"}
_FRONTS: Final = frozenset({"unshift", "prepend", "insert", "appendleft"})
_WRITES: Final = frozenset({"WriteString", "WriteByte", "WriteRune"})  # of Go, into what is empty where it is declared
_WALKS: Final = frozenset({"Walk", "WalkDir"})
# What calls a function with each item of a list, whether that is an argument or what the function is called on.
EACH: Final = frozenset({
    "foreach", "map", "filter", "each", "select", "where", "peek", "flatmap", "removeif", "array_map", "array_walk",
    "array_filter",
    "lapply", "sapply", "vapply", "walk", "for_each", "let", "also", "use", "imap",
    "imap_unordered", "starmap", "foreachasync", "some", "every",
})  # fmt: skip
# Of Kotlin and Ruby, which call a function with one value.
_WITH: Final = frozenset({"let", "also", "use", "then", "tap", "yield_self", "mktmpdir"})
_UNNAMED: Final = ("_1", "it")  # what a block of Ruby is given that names no parameter
_FOUND_BY_PERL: Final = ("$File::Find::name", "$File::Find::dir", "$_")
_NAMED: Final = frozenset({"identifier", "name", "constant"})
_BY_NAME: Final = frozenset({"keyword_argument", "named_argument", "pair"})


_OBJECTS: Final = frozenset({"dictionary", "object", "hash", "array_creation_expression"})
_TEXTS: Final = frozenset(
    {"string", "string_literal", "encapsed_string", "interpreted_string_literal", "simple_symbol"}
)
_WRITTEN: Final = _TEXTS | _OBJECTS | {
    "true", "false", "none", "null", "nil", "boolean", "boolean_literal", "null_literal", "integer", "number",
    "int_literal", "integer_literal", "not_operator", "unary", "unary_expression", "unary_op_expression",
    "prefix_unary_expression", "composite_literal", "true_literal", "false_literal",
}  # fmt: skip
_HOLDING: Final = _OBJECTS | {"array", "list", "tuple", "argument_list", "composite_literal"}
_ITEM: Final = Lazy(r"^([$@]?\w+)(?:\.(?:get|fetch)\(|\[)\s*([\"'`:]?[$\w]+[\"'`]?)\s*(?:,[^()]{0,40})?[\])]$")
_CALLS_ITSELF: Final = frozenset({"call", "apply", "()", "bind"})
_LONGEST_PARAMETERS: Final = 400  # characters of the parameters of a function whose names may be given anything
_MOST_CLASSES: Final = 16
_MOST_FIELDS: Final = 64  # of all classes of a text
_MOST_GIVEN: Final = 8  # values that one of them gets
_WORD: Final = Lazy(r"[A-Za-z_]\w*")
_QUOTES: Final = "'\"`:"
_PUTS: Final = frozenset({"put", "set", "store", "setProperty", "putIfAbsent", "insert", "setdefault"})
_DEFINES: Final = frozenset({"define", "const_set", "setattr", "instance_variable_set"})
_MEMBERS: Final = ("self.", "this.", "$this.")
_OWN_BY_NAME: Final[frozenset[CodeLanguage]] = frozenset({"java", "csharp"})  # that name members without their owner
_ADDED_TO: Final = frozenset({"identifier", "member_access_expression", "member_expression", "attribute"})
_RECORD_MAKERS: Final = frozenset({"new", "define", "namedtuple"})
_RECORDS: Final = frozenset({"Struct.new", "Data.define", "namedtuple", "collections.namedtuple"})  # make a class
_LISTS_FOR: Final = frozenset({"each_child", "foreach", "glob", "each_entry", "find"})  # `Dir.foreach(path) { |name| }`


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
            right, left = right_of(node), left_of(node)
            if left is not None and right is not None and called_name(right) in _RECORD_MAKERS:
                self._take_record(text_of(left), right)
        for node in nodes.get("class", ())[:_MOST_CLASSES]:  # what a record says of its members
            self.fields[text_of(node.child_by_field_name("name"))] += _members_of(node)
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
            value, name_node = right_of(node), left_of(node)
            if value is not None and name_node is not None and value.type in LAMBDAS:
                self.functions.setdefault(text_of(name_node)[:80], value)
        self._items = self._held_names = False  # whether objects of the text hold functions, its own and of others
        self._told: dict[str, str] = {}  # texts that names are
        self.told: set[str] = set()  # last parts of names that are given what is written out
        for node in nodes.get("assign", ()):
            value, name_node = right_of(node), left_of(node)
            held = None if value is None else unwrapped(value)
            held = held if held is None or called_name(held) != "dict" else held.child_by_field_name("arguments")
            if held is not None and name_node is not None and held.type in _HOLDING:
                self._take_items(text_of(name_node)[:LONGEST_REFERENCE], held)
            if value is not None and name_node is not None and value.type in _WRITTEN:
                self.told.update(code_words(text_of(name_node)[:LONGEST_REFERENCE]))
            if value is not None and value.type in _TEXTS and name_node is not None:
                self._told[text_of(name_node)[:LONGEST_REFERENCE]] = unquoted(text_of(value))
        for node in self.functions.values():
            self.told.update(code_words(text_of(node.child_by_field_name("parameters"))[:_LONGEST_PARAMETERS]))
        self._instances = {
            text_of(left_of(node))
            for node in (nodes.get("assign", ()) if self._classes else ())
            if (right := right_of(node)) is not None and self._makes_own(right)
        }
        if language in ("javascript", "typescript"):
            alias_modules(nodes, self.aliases)
        alias_functions(nodes, self.aliases)

    def loaded(self) -> Iterator[tuple[str, Node]]:
        """Each name that a module is loaded into on the spot, and the argument that says which."""
        calls = self._nodes.get("call", ()) if self._language in ("javascript", "typescript") else ()
        return loaded(self._nodes.get("assign", ()), calls[: self._most], self.aliases)

    def _take_record(self, name: str, made: Node) -> None:
        """Take a class that a call makes of its members' names: `Struct.new(:root)`, `namedtuple("C", "root")`."""
        parts = called(made)
        owner = "" if parts.receiver is None else f"{text_of(parts.receiver)}."
        if f"{owner}{parts.name}" in _RECORDS:
            self._classes.add(name)
            told = parts.arguments[1:] if parts.name == "namedtuple" else parts.arguments
            self.fields[name] += [word for one in told for word in _WORD.findall(text_of(one)[:LONGEST_REFERENCE])]

    def _take_items(self, owner: str, held: Node) -> None:
        """Take the functions that an object of the text holds: `{"wipe": shutil.rmtree, "list": lambda p: ...}`."""
        for at, pair in enumerate((held.child_by_field_name("body") or held).named_children[:_MOST_FIELDS]):
            key, value = pair.child_by_field_name("key"), pair.child_by_field_name("value")
            if key is None and pair.named_child_count == 2 and pair.type not in REFERENCES:
                key, value = map(unwrapped, pair.named_children)
            value = unwrapped(pair if value is None else value)
            full = f"{owner}.{at if key is None else text_of(key).strip(_QUOTES)}"
            if self._language == "php" and value.type in _TEXTS:  # whose functions are called by their names
                self.aliases.setdefault(full, unquoted(text_of(value)))
                self._held_names = True
            if value.type in LAMBDAS:
                self.functions.setdefault(full, value)
                self._items = True
            elif value.type in REFERENCES and value.end_byte - value.start_byte <= LONGEST_REFERENCE:
                head, dot, rest = canonical(text_of(value)).partition(".")
                self.aliases.setdefault(full, f"{self.aliases.get(head, head)}{dot}{rest}")
                self._held_names = True

    def item_of(self, parts: Called) -> str:
        """The item of an object that a call calls, as `table.key`; empty where it calls none."""
        if parts.receiver is not None and parts.name not in _CALLS_ITSELF:
            return f"{canonical(text_of(parts.receiver)[:LONGEST_REFERENCE])}.{parts.name}"
        written = text_of(parts.receiver) if parts.receiver is not None else parts.name
        match = _ITEM.match(written[:LONGEST_REFERENCE]) if written[-1:] in ("]", ")") else None
        if match is None:
            return ""
        key = match.group(2)
        return f"{match.group(1)}.{key.strip(_QUOTES) if key[0] in _QUOTES else self._told.get(key, key)}"

    def held(self, node: Node) -> str:
        """The name elsewhere of what a call calls that an object of the text holds; empty where it holds nothing."""
        function = node.child_by_field_name("function") if self._held_names else None
        return "" if function is None else self.aliases.get(self.item_of(called(node)), "")

    def own(self, parts: Called) -> Node | None:
        """The function of the text itself that a call calls; nothing where it calls somebody else's."""
        name = parts.name.strip().lstrip("\\")
        if self._items and (item := self.functions.get(self.item_of(parts))) is not None:
            return item
        if name == "new" and parts.receiver is not None and text_of(parts.receiver) in self._classes:  # of Ruby
            return self.functions.get(text_of(parts.receiver)) or self.functions.get(name)
        own = self.functions.get(name)
        if own is not None and own.type == "method_declaration" and own.child_by_field_name("receiver") is not None:
            return own  # of Go, where nothing but its name says so
        if parts.receiver is None or text_of(parts.receiver) in _OWN or self._is_own(parts.receiver):
            return own
        if text_of(parts.receiver) in self._classes or self._language == "lua":
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
        item = self.aliases.get(self.item_of(parts)) if self._held_names else None
        if item is not None:
            return [item.lower(), *_shorter(item.lower())]
        if parts.receiver is None:
            if name in self.functions:
                return []
            full = canonical(self.aliases.get(name, name).lower()).partition("<")[0]
            if parts.created:
                return [f"new {full}", full, f"new {full.rpartition('.')[2]}"]
            return [full, *_shorter(full)]
        owner = text_of(parts.receiver)
        match = REQUIRED.match(owner) if "(" in owner else None
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
                    if plain[:2] in ("$$", "${"):  # of PHP, by its name as a text
                        plain = f"${self._told.get(plain[1:].strip('{}'), '')}"
                    names[plain].append(one)
                    for prefix in (owner, "self", "this", "$this", "static", "cls") if owner else ():
                        names[f"{prefix}.{plain.lstrip('$@')}"].append(one)
                    if owner:
                        self.fields[owner].append(plain.lstrip("$@"))
                    elif plain.startswith(_MEMBERS) and self._language in _OWN_BY_NAME:  # `this.root = root`
                        names[plain.partition(".")[2]].append(one)
        for node in self._nodes.get("call", ())[: self._most]:
            self._bind_parameters(node, names)
        bare = self._language in _OWN_BY_NAME
        given = [key for key in names if key.startswith((*_MEMBERS, "@")) or (bare and key.isidentifier())][
            :_MOST_FIELDS
        ]
        for node in list(self._nodes.get("class", ()))[:_MOST_CLASSES]:
            self._take_fields(node, given, names)
        for node in list(self._nodes.get("class", ()))[:_MOST_CLASSES]:  # what a class has from another
            name = text_of(node.child_by_field_name("name"))
            for base in _WORD.findall(text_of(node).partition("\n")[0][:LONGEST_REFERENCE]) if name else ():
                for field in self.fields.get(base, ()) if base != name else ():
                    names[f"{name}.{field}"] = names[f"{name}.{field}"] or list(names[f"{base}.{field}"])
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
        if name in self.functions or (name == "new" and self._classes) or self._items:
            parts = called(node)
            own = self.own(parts)
            if own is not None:
                self._bind_given(own, parts, node, names)
                for parameter in parameters(own, "receiver") if parts.receiver is not None else ():
                    names[parameter].append(BoundName(parameter, parts.receiver or node, node, given=True))
        function = node.child_by_field_name("function")
        while function is not None and function.type == "parenthesized_expression":
            function = function.named_children[0] if function.named_child_count else None
        if function is not None and function.type in LAMBDAS:  # that is called where it is written
            self._bind_given(function, called(node), node, names)
        if name in _PUTS and (len(given := arguments_of(node)) == 2):  # `map.put("key", value)`
            key = f"{canonical(text_of(called(node).receiver))}[{text_of(given[0])[:80].strip(_QUOTES)}]"
            names[key].append(BoundName(key, given[1], node))
        if name in _DEFINES and len(given := arguments_of(node)) > 1:  # `define("ROOT", "/etc")`
            key = text_of(given[0]).strip(_QUOTES)
            names[key].append(BoundName(key, given[1], node, given=True))
        if name == "extract" and self._language == "php":  # `extract(["root" => "/etc"])`
            held = next(iter(arguments_of(node)), None)
            known = names.get(text_of(held)[:LONGEST_REFERENCE], ()) if held is not None else ()
            for pair in () if held is None else (known[0].value if known else held).named_children[:_MOST_FIELDS]:
                if pair.named_child_count == 2:
                    key = f"${text_of(pair.named_children[0]).strip(_QUOTES)}"
                    names[key].append(BoundName(key, pair.named_children[1], node))
        if name in ("push", "array_push") and self._language in ("perl", "php"):
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
            if owner is None and self._language == "kotlin" and parts.arguments:  # `buildList { add("x") }`
                for built in BUILDS:
                    names[built].append(BoundName(built, parts.arguments[0], node, adds=True, begins=BUILDS[built]))
            given = parts.arguments[name == "insert" and text_of(next(iter(parts.arguments), None)) == "0" :]
            several = name in ("push", "unshift", "insert", "appendleft")
            if owner is not None and owner.type in _ADDED_TO and (len(given) == 1 or (several and name != "insert")):
                listed = canonical(text_of(owner)[:LONGEST_REFERENCE])
                begins: Literal["", "text", "list"] = (
                    "text" if name in _WRITES else "" if owner.type == "identifier" else "list"
                )
                front = name in _FRONTS
                names[listed] += [
                    BoundName(listed, one, node, adds=True, begins=begins, front=front) for one in given[:_MOST_GIVEN]
                ]
        block = node.child_by_field_name("block")
        if block is not None:
            makes = name == "mktmpdir" or (name in _LISTS_FOR and arguments_of(node))
            receiver = node if makes else node.child_by_field_name("receiver")
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
                for _, one in patterns(own)[:1]:  # `([key, value]) => ...`
                    for part in parts_of(one):
                        name = name_of(part.node)
                        names[name].append(BoundName(name, listed, node, each=each, part=part.part))
            return

    def _bind_given(self, own: Node, parts: Called, node: Node, names: dict[str, list[BoundName]]) -> None:
        """Bind the parameters of a function to what one call gives them, else to what stands for nothing."""
        named, plain = _apart(parts)
        inside = (0, 0) if self._language in PLAIN else (own.start_byte, own.end_byte)
        for at, (parameter, default) in enumerate(defaults(own)):
            given = plain[at] if at < len(plain) else named.get(parameter.lstrip("$"), default)
            if given is not None:
                names[parameter].append(BoundName(parameter, given, node, given=True, inside=inside))
                if self._language == "php":  # what a constructor may promote to a member
                    member = f"$this.{parameter.lstrip('$')}"
                    names[member].append(BoundName(member, given, node, given=True))
        if self._language == "ruby" and named and len(own_names := parameters(own)) > len(plain):
            taker, every = own_names[-1], node.child_by_field_name("arguments")
            if taker.rstrip(":") not in named and every is not None and not plain:
                names[taker].append(BoundName(taker, every, node, given=True, inside=inside))
        for at, pattern in patterns(own):  # `({root, name}) => ...`
            for part in parts_of(pattern) if at < len(plain) else ():
                name = name_of(part.node)
                names[name].append(BoundName(name, plain[at], node, given=True, part=part.part, inside=inside))
        if self._language == "perl" and (every := node.child_by_field_name("arguments")) is not None:
            names["@_"].append(BoundName("@_", every, node, given=True))
        if (rest := rest_of(own)) and (every := node.child_by_field_name("arguments")) is not None:
            behind = f"{len(parameters(own))}:".removeprefix("0:")
            names[rest].append(BoundName(rest, every, node, given=True, part=behind))


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


def _members_of(declared: Node) -> list[str]:
    """The members that a class gets in the order in which a call gives them: of a record, and of a structure of Go."""
    for one in declared.named_children:
        if one.type == "parameter_list":
            return [text_of(each.child_by_field_name("name")) for each in one.named_children]
        if one.type == "struct_type" and one.named_child_count:
            listed = one.named_children[0].named_children
            return [text_of(each) for member in listed for each in member.children_by_field_name("name")]
        if one.type == "block":  # of Python, by the types that they are declared with
            told = [each.named_children[0] for each in one.named_children if each.type == "expression_statement"]
            return [text_of(left_of(each)) for each in told if each.child_by_field_name("type") is not None]
    return []


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
