"""A piece of code as its calls and assignments, by the grammar of its language (tree-sitter).

The parsers never fail: what they cannot read becomes an error node, and everything around it is still there.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Final, Literal, NamedTuple

import re2
import tree_sitter_javascript
import tree_sitter_php
import tree_sitter_python
from tree_sitter import Language, Node, Query

from aegis.facts.effort import Effort
from aegis.facts.fold import unpiled
from aegis.facts.grammar import Grammar, captures

CodeLanguage = Literal["python", "javascript", "php"]
MAX_CODE: Final = 16_384  # characters given to a parser
_MOST_NODES: Final = 2_000  # calls and assignments of one text that are looked at
_LONGER: Final = 2  # times as long as itself that a text may become; one character can stand for eighteen
_UNITS: Final = 1  # of effort that a character of a call costs
_QUERIES: Final[dict[CodeLanguage, str]] = {
    "python": "(call) @call (assignment) @assign (import_statement) @import (import_from_statement) @import",
    "javascript": "[(call_expression) (new_expression)] @call [(variable_declarator) (assignment_expression)] @assign",
    "php": (
        "[(function_call_expression) (member_call_expression) (scoped_call_expression) (object_creation_expression)"
        " (include_expression) (include_once_expression) (require_expression) (shell_command_expression)] @call"
        " (assignment_expression) @assign"
    ),
}
_PHP: Final = re2.compile(
    r"(?i)<\?(?:php|=)|\$_(?:GET|POST|REQUEST|SERVER|COOKIE)\b|\$\w+\s*=[^=]|\$\w+->|\becho\s+[\"'$]"
)
_JAVASCRIPT: Final = re2.compile(
    r"\b(?:const|let|var)\s+[\w{\[]|=>|\brequire\s*\(|\bfunction\s*\*?\s*\w*\s*\(|\bconsole\.log|\bprocess\.|===|"
    r"\bnew\s+[A-Z]|\bawait\s+fetch|\bdocument\.|\bimport\s+[\w{*][^\n]{0,80}\s+from\s+['\"]"
)
_PYTHON: Final = re2.compile(
    r"(?m)^\s*(?:import\s+\w|from\s+[\w.]+\s+import\b|def\s+\w+\(|class\s+\w+[(:]|print\(|with\s+open)"
)


_LOADED: Final = re2.compile(
    r"""^[\w.(]{0,60}(?:require|__import__|import_module|import)\(['"`](?:node:)?([\w./-]{1,60})['"`]\)+"""
)
_ITEM: Final = re2.compile(r"""\[['"`](\w{1,60})['"`]\]""")


class Call(NamedTuple):
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


class Code(NamedTuple):
    """The calls and assignments of a text, in its order; `cut` where not all of it was read as it stands."""

    calls: tuple[Call, ...]
    assignments: tuple[Assignment, ...]
    cut: bool = False


def language_of(text: str, hint: str = "") -> CodeLanguage:
    """The language of a piece of code: by its opening tag, the name of what runs it, then how it is written."""
    if text.lstrip().startswith("<?"):
        return "php"
    for word, language in _HINTS.items():
        if word in hint:
            return language
    if _PYTHON.search(text):
        return "python"
    if "<?" in text:
        return "php"
    if _JAVASCRIPT.search(text):
        return "javascript"
    return "php" if _PHP.search(text) else "python"


_HINTS: Final[dict[str, CodeLanguage]] = {
    "python": "python", "jupyter": "python", "notebook": "python", "ipython": "python", "node": "javascript",
    "javascript": "javascript", "typescript": "javascript", "deno": "javascript", "bun": "javascript", "php": "php",
}  # fmt: skip


# The grammar of PHP is the largest, and its repairs take longest.
_REPAIR: Final[dict[CodeLanguage, int]] = {"python": 6, "javascript": 6, "php": 48}


@cache
def _grammar(language: CodeLanguage) -> Grammar:
    modules = {
        "python": tree_sitter_python.language,
        "javascript": tree_sitter_javascript.language,
        "php": tree_sitter_php.language_php,
    }
    grammar = Language(modules[language]())
    return Grammar(grammar, Query(grammar, _QUERIES[language]), _REPAIR[language])


def parse_code(text: str, language: CodeLanguage, effort: Effort) -> Code:
    """The calls and assignments of at most `MAX_CODE` characters of code, as far as `effort` goes.

    Calls stand inside calls, and each is read whole: what it costs is its own length.
    """
    if language == "php" and "<?" not in text:
        text = f"<?php {text}"
    grammar = _grammar(language)
    if not text.isascii():
        text = unicodedata.normalize("NFKC", unpiled(text))  # as Python reads names (PEP 3131)
        if len(text) > MAX_CODE * _LONGER:
            return Code((), (), cut=True)
    calls: list[Call] = []
    assignments: list[Assignment] = []
    aliases: dict[str, str] = {}
    cut = False
    for captured in captures(grammar, text, effort):
        if captured is None:
            cut = True
            continue
        found = captured.nodes
        for node in found.get("import", ()):
            _aliases(node, aliases)
        called = _affordable(found.get("call", ()), effort)
        assigned = _affordable(found.get("assign", ()), effort)
        calls += sorted((_call(node, aliases) for node in called), key=_order)
        assignments += sorted((one for node in assigned if (one := _assignment(node)) is not None), key=_order)
        cut = cut or len(called) + len(assigned) < len(found.get("call", ())) + len(found.get("assign", ()))
    return Code(tuple(calls), tuple(assignments), cut)


def _affordable(nodes: Sequence[Node], effort: Effort) -> list[Node]:
    """The first nodes, as far as `effort` goes."""
    taken: list[Node] = []
    for node in nodes[:_MOST_NODES]:
        if not effort.take((node.end_byte - node.start_byte) * _UNITS):
            break
        taken.append(node)
    return taken


def _order(item: Call | Assignment) -> int:
    return item.order


def _call(node: Node, aliases: dict[str, str]) -> Call:
    function = (
        node.child_by_field_name("function")
        or node.child_by_field_name("constructor")
        or node.child_by_field_name("name")
    )
    name = _text(function) if function is not None else node.type.removesuffix("_expression")
    receiver = node.child_by_field_name("object") or node.child_by_field_name("scope")
    if receiver is not None and node.type.startswith(("member", "scoped")):
        name = f"{_text(receiver)}.{name}"
    head, dot, rest = name.partition(".")
    name = f"{aliases.get(head, head)}{dot}{rest}"
    arguments = node.child_by_field_name("arguments")
    given = _text(arguments) if arguments is not None else _text(node)
    return Call(_plain("".join(name.split()).lower())[-200:], given, _text(node), node.start_byte)


def _plain(name: str) -> str:
    """What is called, where its module is loaded on the spot or it is an item: `require('fs')['rm']` as `fs.rm`."""
    if "(" in name or "[" in name:
        return str(_ITEM.sub(r".\1", _LOADED.sub(r"\1", name)))
    return name


def _assignment(node: Node) -> Assignment | None:
    left = node.child_by_field_name("left") or node.child_by_field_name("name")
    right = node.child_by_field_name("right") or node.child_by_field_name("value")
    if left is None or right is None:
        return None
    return Assignment(_text(left)[:80], _text(right), node.start_byte)


def _aliases(node: Node, aliases: dict[str, str]) -> None:
    """The names that an import brings in, with what they stand for: `from os import system as s`."""
    module = node.child_by_field_name("module_name")
    prefix = f"{_text(module)}." if module is not None else ""
    for child in node.named_children:
        if child.type == "aliased_import":
            target, alias = child.child_by_field_name("name"), child.child_by_field_name("alias")
            if target is not None and alias is not None:
                aliases[_text(alias)] = prefix + _text(target)
        elif prefix and child.type == "dotted_name" and child != module:
            aliases[_text(child)] = prefix + _text(child)


def _text(node: Node) -> str:
    raw: bytes = node.text or b""
    return raw.decode("utf-8", "replace")
