"""Commands by their words after parsing; what a shell would still have to work out is not readable."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import tree_sitter_bash
from tree_sitter import Language, Parser

MAX_CHARS: Final = 16_384  # the parser takes 196 ms for a mebibyte
MAX_NODES: Final = 5_000
_LANGUAGE: Final = Language(tree_sitter_bash.language())
_LITERAL: Final = frozenset({"word", "raw_string", "number", "string", "concatenation"})
# Everything else (assignments, functions, loops, expansions of arrays) makes the text unreadable here.
_KNOWN: Final = _LITERAL | {
    "program", "list", "pipeline", "command", "command_name", "string_content", "redirected_statement",
    "file_redirect", "file_descriptor", "comment", "command_substitution", "simple_expansion", "variable_name",
    "special_variable_name", "subshell",
}  # fmt: skip
_SPECIAL: Final = frozenset("*?[]{}~\\$`")


class Commands(NamedTuple):
    """The words of every command of a text, and the files that it redirects to or from."""

    words: frozenset[tuple[str, ...]]
    files: frozenset[str]


def readings(text: str) -> Commands | None:
    """Every command of a shell text; `None` where its programs cannot be told without running it."""
    if not text.strip() or len(text) > MAX_CHARS or "\0" in text:
        return None
    root = Parser(_LANGUAGE).parse(text.encode("utf-8", "replace")).root_node
    if root.has_error:
        return None
    words: set[tuple[str, ...]] = set()
    files: set[str] = set()
    stack: list[Any] = [root]
    for _ in range(MAX_NODES):
        if not stack:
            break
        node = stack.pop()
        if node.type not in _KNOWN:
            return None
        if node.type == "command":
            command = _command(node)
            if command is None:
                return None
            words.add(command)
        elif node.type == "file_redirect":
            target = _literal(node.named_children[-1]) if node.named_children else None
            if target is None:
                return None
            if target != "/dev/null" and not target.isdigit():
                files.add(target)
        stack.extend(node.named_children)
    return None if stack or not words else Commands(frozenset(words), frozenset(files))


def pattern_words(text: str) -> tuple[str, ...]:
    """A command in a scope: program, sub-command and further words; what follows them is free."""
    return (*text.split(), "**")


def _command(node: Any) -> tuple[str, ...] | None:
    """Program and arguments; an argument that is worked out later stands as `$`, the first two words may not."""
    words: list[str] = []
    for child in node.named_children:
        if child.type in ("file_redirect", "comment"):
            continue
        value = _literal(child.named_children[0] if child.type == "command_name" and child.named_children else child)
        if value is None and len(words) < 2:
            return None
        words.append("$" if value is None else value)
    return tuple(words) or None


def _literal(node: Any) -> str | None:
    """What a word means where no expansion can change it."""
    raw = (node.text or b"").decode("utf-8", "replace")
    if node.type == "raw_string":
        return raw[1:-1]
    if node.type == "string":
        inner = raw[1:-1]
        return None if any(char in inner for char in '$`\\"') else inner
    if node.type in ("word", "number"):
        return None if any(char in _SPECIAL for char in raw) else raw
    if node.type == "concatenation":
        parts = [_literal(child) for child in node.named_children]
        return None if any(part is None for part in parts) else "".join(part or "" for part in parts)
    return None
