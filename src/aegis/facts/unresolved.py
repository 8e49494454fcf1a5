"""Values that are not there yet: placeholders of templates, and references to results that are still pending.

Found by us, whatever the caller declares. Braces in literal content (code, JSON, prose) are content:
inside of a longer text only the forms that nobody writes by chance count.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import re2

from aegis.core.pointer import escape, tokens
from aegis.core.text import TextRole
from aegis.facts.extract import MOST_POINTERS
from aegis.facts.roles import argument_of

MAX_FOUND: Final = 100  # pointers named for one call: bounds what a refusal carries
_SHORT: Final = 512  # longer text is content
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+|\[[A-Za-z0-9_'\"-]+\])*"
# The whole value is one placeholder or one reference.
_WHOLE: Final = re2.compile(
    rf"\s*(?:\{{\s*(?:{_NAME}|[0-9]{{1,3}})\s*(?:![rsa])?\s*\}}|\$\{{[^{{}}\n]{{1,200}}\}}|\{{\{{[^{{}}\n]{{1,200}}\}}\}}"
    rf"|<\s*(?:pending|unresolved|await|awaiting|result of|output of)\s*:[^<>\n]{{1,200}}>"
    rf"|\$(?:ref|result|output|pending):[^\s]{{1,200}})\s*"
)
# Inside of a text: what no language writes by chance, and names in braces where the text is short.
_ANYWHERE: Final = re2.compile(r"<pending:[^<>\n]{1,200}>")
_TEMPLATE: Final = re2.compile(rf"\{{\{{\s*{_NAME}\s*\}}\}}|\$\{{{_NAME}\}}")
_FORMAT: Final = re2.compile(rf"(?:^|[^{{}}$\\\w#]){{{_NAME}}}(?:[^}}]|$)")
# Arguments whose text is content: braces belong to it.
_CONTENT: Final = frozenset({
    "body", "text", "content", "contents", "code", "message", "html", "markdown", "template", "script", "prompt",
    "description", "comment", "note", "notes", "data", "json", "yaml", "xml", "css", "source_code", "snippet", "patch",
    "diff", "new_string", "old_string", "new_str", "old_str", "file_text", "format", "pattern", "regex", "expression",
    "formula", "title", "summary", "schema", "graphql",
})  # fmt: skip
_FORMATTED: Final = frozenset({"url", "uri", "endpoint", "sql", "statement", "query"})  # where `=` is no code
# Where a shell expands names itself, `${x}` is its own syntax.
_SHELL: Final = frozenset({"command", "cmd", "script", "bash", "shell"})
# Roles of text that is for people or is written as it stands.
_TEXTS: Final[frozenset[TextRole]] = frozenset({"content", "document", "code"})
_NO_ROLES: Final[Mapping[str, TextRole]] = MappingProxyType({})
_REFERENCES: Final = frozenset({"$ref", "$result", "$output", "$pending"})


def find_unresolved(arguments: Mapping[str, Any], roles: Mapping[str, TextRole] = _NO_ROLES) -> tuple[str, ...]:
    """Pointers of values that are placeholders or pending references; at most `MAX_FOUND`, in document order.

    `roles` are declared by the operator: where one says that a value is text, braces in it are text.
    """
    if not _may_be_pending(arguments):
        return ()
    found: list[str] = []
    stack: list[tuple[str, Any]] = [("", arguments)]
    pointers = 0
    while stack and len(found) < MAX_FOUND:
        path, value = stack.pop()
        if isinstance(value, (dict, list)):
            pointers += (len(path) + 1) * len(value)
            if pointers > MOST_POINTERS:
                break  # the walk over the strings refuses such a call
        if type(value) is str:
            if ("{" in value or "<" in value or "$" in value) and _is_pending(path, value, roles):
                found.append(path)
        elif isinstance(value, dict):
            if len(value) == 1 and _is_reference(value):
                found.append(path)
                continue
            stack.extend([(f"{path}/{escape(str(key))}", inner) for key, inner in reversed(value.items())])
        elif isinstance(value, list):
            stack.extend([(f"{path}/{index}", inner) for index, inner in enumerate(value)][::-1])
    return tuple(found)


def is_placeholder(path: str, value: str) -> bool:
    """Whether the whole of a text is one placeholder or reference, so that nothing of it can be looked at yet."""
    if "{" not in value and "<" not in value and "$" not in value:
        return False
    return bool(_WHOLE.fullmatch(value)) and not (_argument(path) in _SHELL and value.lstrip().startswith("$"))


def _may_be_pending(arguments: Mapping[str, Any]) -> bool:
    """Whether anything in the arguments has a sign of a placeholder or a reference; most have none."""
    stack: list[Any] = [arguments]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if len(item) == 1 and not _REFERENCES.isdisjoint(item):
                return True
            item = item.values()
        for inner in item:
            kind = type(inner)
            if kind is str:
                if "{" in inner or "<" in inner or "$" in inner:
                    return True
            elif kind is dict or kind is list:
                stack.append(inner)
    return False


def _is_pending(path: str, value: str, roles: Mapping[str, TextRole]) -> bool:
    name = _argument(path)
    if roles and (roles.get(path) or roles.get(argument_of(path))) in _TEXTS:
        return _ANYWHERE.search(value) is not None
    if is_placeholder(path, value):
        return True
    if _WHOLE.fullmatch(value):
        return False
    if _ANYWHERE.search(value):
        return True
    if len(value) > _SHORT or "\n" in value or name in _CONTENT:
        return False
    if name not in _SHELL and _TEMPLATE.search(value):
        return True
    # Text with other structure around its braces is code or data.
    if name in _SHELL or any(char in value for char in ";\"'`>") or value.count("{") != value.count("}"):
        return False
    if "=" in value and name not in _FORMATTED:
        return False
    return _FORMAT.search(value) is not None


def _is_reference(value: dict[Any, Any]) -> bool:
    ((key, inner),) = value.items()
    # In JSON Schema a reference begins with `#` or names a document.
    return key in _REFERENCES and isinstance(inner, str) and "#" not in inner and "://" not in inner


def _argument(path: str) -> str:
    for token in reversed(tokens(path)):
        if not token.isdigit():
            return token.lower()
    return ""
