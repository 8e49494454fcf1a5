"""What imports and other names for functions of libraries stand for, and calls by what they call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tree_sitter import Node

from aegis.core.patterns import Lazy
from aegis.detect.languages.bindings import LAMBDAS, called_name, left_of, member_of, parameters, results_of, right_of
from aegis.detect.languages.syntax import CodeLanguage, arguments_of, called, canonical, text_of

REQUIRED: Final = Lazy(
    r"""^(?:await\s+)?(?:require|import)\(\s*['"`](?:node:)?([\w./@-]{1,60})['"`]\s*\)([\w.]{0,40})$"""
)
REFERENCES: Final = frozenset({
    "attribute", "member_expression", "identifier", "selector_expression", "member_access_expression",
})  # fmt: skip
LONGEST_REFERENCE: Final = 80
_ALIASED: Final = frozenset({"identifier", "expression_list"})
_BINDS: Final = frozenset({"partial", "bind", "method", "promisify"})  # that make another function of one
AS_FUNCTION: Final = frozenset({"to_proc", "curry"})  # of Ruby, which make a function of one
_SUBSCRIPTS: Final = frozenset({"subscript", "subscript_expression", "element_reference"})
_RUNS: Final = frozenset({"exec", "eval", "compile"})
LOADS: Final = frozenset({"__import__", "import_module", "importlib.import_module", "require", "import"})
_LONGEST_LOADER: Final = 24


def alias_functions(nodes: Mapping[str, Sequence[Node]], aliases: dict[str, str]) -> None:
    """Follow functions of libraries that are given another name: `wipe = shutil.rmtree`, `partial(os.remove)`."""
    for node in nodes.get("assign", ()):
        left, right = left_of(node), right_of(node)
        if left is None or right is None or left.type not in _ALIASED:
            continue
        while called_name(right) in AS_FUNCTION and (bare := called(right).receiver) is not None:
            right = bare
        if right.type in ("call", "call_expression") and called_name(right) in _BINDS:
            parts = called(right)
            right = parts.receiver if called_name(right) == "bind" else next(iter(parts.arguments), right)
            if right is not None and parts.name == "method" and right.type == "simple_symbol":  # of Ruby
                method = f"{canonical(text_of(parts.receiver))}.{text_of(right).strip(':')}"
                aliases.setdefault(text_of(left), method.lstrip("."))
                continue
        right = _picked(right)
        if right is not None and (match := REQUIRED.match(text_of(right)[: 2 * LONGEST_REFERENCE])) and match.group(2):
            aliases.setdefault(text_of(left), match.group(1).replace("/", ".") + match.group(2))
        if right is not None and right.type in REFERENCES and right.end_byte - right.start_byte <= LONGEST_REFERENCE:
            head, dot, rest = canonical(text_of(right)).partition(".")
            name = text_of(left)
            if dot or head in LOADS or head in _RUNS or head in aliases:
                aliases.setdefault(name, f"{aliases.get(head, head)}{dot}{rest}")


def _picked(node: Node | None) -> Node | None:
    """What is picked out of an object that is written out by a key that is: `{"run": exec, "show": print}["run"]`."""
    if node is None or node.type not in _SUBSCRIPTS or node.named_child_count != 2:
        return node
    held, key = node.named_children
    return member_of(held, text_of(key).strip("'\"`:")) or node


def alias_modules(nodes: Mapping[str, Sequence[Node]], aliases: dict[str, str]) -> None:
    """What names of other modules stand for: `const {rmSync: rm} = require('fs')`, `import {rm as r} from 'fs'`."""
    for node in nodes.get("import", ()):
        source = node.child_by_field_name("source")
        if source is not None:
            _import(node, text_of(source).strip("'\"`").removeprefix("node:").replace("/", "."), aliases)
    for node in nodes.get("assign", ()):
        right, left = right_of(node), left_of(node)
        if right is None or left is None or right.end_byte - right.start_byte > 120:
            continue
        match = REQUIRED.match(text_of(right))
        if match is None and (left.type != "object_pattern" or text_of(right) not in aliases):
            continue
        module = aliases[text_of(right)] if match is None else match.group(1).replace("/", ".") + match.group(2)
        if left.type == "identifier":
            aliases[text_of(left)] = module
        for member in left.named_children if left.type == "object_pattern" else ():
            key, value = member.child_by_field_name("key"), member.child_by_field_name("value")
            aliases[text_of(value or member)] = f"{module}.{text_of(key or member)}".removesuffix(".default")


def _import(node: Node, module: str, aliases: dict[str, str]) -> None:
    for clause in node.named_children:
        for one in clause.named_children if clause.type == "import_clause" else ():
            if one.type == "identifier":
                aliases[text_of(one)] = module
            elif one.type == "namespace_import" and one.named_child_count:
                aliases[text_of(one.named_children[-1])] = module
            elif one.type == "named_imports":
                for member in one.named_children:
                    name, alias = member.child_by_field_name("name"), member.child_by_field_name("alias")
                    aliases[text_of(alias or name)] = f"{module}.{text_of(name)}".removesuffix(".default")


def loaded(assigned: Sequence[Node], calls: Sequence[Node], aliases: Mapping[str, str]) -> Iterator[tuple[str, Node]]:
    """Each name that a module is loaded into on the spot, and the argument that says which."""
    for node in assigned:
        right, left = right_of(node), left_of(node)
        if right is not None and left is not None and left.type == "identifier":
            argument = loaded_module(right, aliases)
            if argument is not None:
                yield text_of(left), argument
    for node in calls:
        function = node.child_by_field_name("function") if called_name(node) == "then" else None
        owner = next(iter(function.named_children), None) if function is not None else None
        argument = None if owner is None else loaded_module(owner, aliases)
        given = () if argument is None else arguments_of(node)[:1]
        if argument is not None and given and given[0].type in LAMBDAS:
            for name in parameters(given[0])[:1]:
                yield name, argument


def loaded_module(node: Node, aliases: Mapping[str, str]) -> Node | None:
    """The argument that says which module a call loads; nothing of every other call."""
    if node.type == "subscript" and text_of(node).startswith("sys.modules["):
        return node.named_children[-1]
    function = node.child_by_field_name("function")
    if function is None or function.end_byte - function.start_byte > _LONGEST_LOADER:
        return None
    name = text_of(function)
    return next(iter(arguments_of(node)), None) if aliases.get(name, name) in LOADS else None


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


# Calls and assignments as text, for what is asked of the text of a program.

_LOADED: Final = Lazy(
    r"""^[\w.(]{0,60}(?:require|__import__|import_module|import)\(['"`](?:node:)?([\w./-]{1,60})['"`]\)+"""
)
_ITEM: Final = Lazy(r"""\[['"`](\w{1,60})['"`]\]""")


class CodeCall(NamedTuple):
    """One call: the name of what is called, with aliases resolved; its arguments and all of it as text."""

    name: str
    arguments: str
    text: str
    order: int


class Assignment(NamedTuple):
    """A name that gets a value."""

    name: str
    value: str
    order: int


def call_of(node: Node, aliases: Mapping[str, str], language: CodeLanguage, held: str = "") -> CodeCall:
    """A call with the name of what it calls, as far as imports, modules that are loaded on the spot, and what an object
    holds (`held`) tell it.
    """
    function = (
        node.child_by_field_name("function")
        or node.child_by_field_name("constructor")
        or node.child_by_field_name("name")
    )
    receiver = node.child_by_field_name("object") or node.child_by_field_name("scope")
    if function is None:
        parts = called(node)
        function_name = parts.name or node.type.removesuffix("_expression")
        receiver = parts.receiver
    else:
        function_name = text_of(function)
    if receiver is not None and (language != "php" or node.type.startswith(("member", "scoped"))):
        function_name = f"{text_of(receiver)}.{function_name}"
    head, dot, rest = function_name.partition(".")
    name = held or f"{aliases.get(head, head)}{dot}{rest}"
    arguments = node.child_by_field_name("arguments")
    whole = text_of(node)
    given = text_of(arguments) if arguments is not None else whole
    return CodeCall(_plain("".join(name.split()).lower())[-200:], given, whole, node.start_byte)


def _plain(name: str) -> str:
    """What is called, where its module is loaded on the spot or it is an item: `require('fs')['rm']` as `fs.rm`."""
    if "(" in name or "[" in name:
        return str(_ITEM.sub(r".\1", _LOADED.sub(r"\1", name)))
    return name


def assignment_of(node: Node) -> Assignment | None:
    """What a name is given; nothing where a node gives no value to any."""
    if node.type == "as_pattern":  # `with open(...) as file`
        given = node.child_by_field_name("alias")
        return Assignment(text_of(given)[:80], text_of(node.children[0]), node.start_byte) if given else None
    left = node.child_by_field_name("left") or node.child_by_field_name("name")
    right = node.child_by_field_name("right") or node.child_by_field_name("value")
    if right is None and node.type == "variable_declarator" and node.named_child_count > 1:
        right = node.named_children[-1]
    if left is None or right is None:
        return None
    return Assignment(text_of(left)[:80], text_of(right), node.start_byte)


def result_of(function: Node) -> Assignment | None:
    """The name of a function with what it gives back, which is known where the function ends."""
    results = results_of(function).nodes
    if not results:
        return None
    name = text_of(function.child_by_field_name("name"))
    return Assignment(name[:80], "\n".join(map(text_of, results)), function.end_byte) if name else None
