"""Words in names of arguments and tools, and what they say about a string's use.

Names are split at case changes, digits and punctuation; the last telling word wins, because names end
with what a thing is (`file_path`, `queryUrl`). They are the weakest evidence: a declared role, then the
string itself, come first.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import re2

from aegis.core.text import TextRole

_WORD: Final = re2.compile(r"[A-Z]+[a-z]*|[a-z]+")
_ROLES: Final[dict[TextRole, tuple[str, ...]]] = {
    "command": ("command", "cmd", "commands", "shell", "bash", "cmdline", "argv", "shellcommand", "terminal"),
    "sql": ("sql", "statement", "statements", "stmt"),
    "path": (
        "path", "file", "filename", "filepath", "dir", "directory", "folder", "paths", "files", "filenames",
        "destination",
        "cwd", "pathname", "workdir",
    ),
    "url": ("url", "uri", "link", "href", "endpoint", "webhook", "host", "hostname", "urls", "domain", "ip",
        "website", "site", "address"),
    "query_fragment": ("filter", "where", "conditions", "condition", "criteria", "orderby", "keyword", "search",
        "term", "selector"),
    "code": ("code", "script", "source", "program", "expression", "snippet", "formula", "function", "lambda", "eval"),
    "content": (
        "content", "contents", "body", "text", "message", "description", "comment", "subject", "title", "summary",
        "note",
        "notes", "document", "html", "markdown", "caption", "reason", "prompt", "instructions", "instruction",
        "patch",
        "diff", "data", "payload", "output", "input", "answer", "reply", "review", "feedback", "thought", "bio",
        "post",
        "str", "paragraph", "value", "question", "task", "email",
    ),
    "identifier": (
        "name", "id", "username", "user", "login", "city", "country", "state", "category", "type", "kind",
        "status", "key",
        "label", "tag", "code_name", "account", "firstname", "lastname", "phone", "zip", "date", "time",
        "location", "unit",
        "currency", "language", "format", "mode", "order", "product", "customer", "surname", "title_id",
        "password", "token",
    ),
}  # fmt: skip
_BY_WORD: Final[dict[str, TextRole]] = {word: role for role, words in _ROLES.items() for word in words}
_SQL_TOOL: Final = frozenset(
    {"sql", "database", "db", "postgres", "postgresql", "mysql", "sqlite", "bigquery", "snowflake", "duckdb"}
)
_SHELL_TOOL: Final = frozenset(
    {"bash", "shell", "terminal", "sh", "exec", "execute", "run", "command", "cmd", "powershell", "console"}
)
_CODE_TOOL: Final = frozenset(
    {"python", "javascript", "code", "node", "repl", "notebook", "jupyter", "interpreter", "ruby", "php"}
)


@lru_cache(maxsize=8_192)
def words_of(name: str) -> tuple[str, ...]:
    """The lower-case words of a name; at most 16."""
    plain = name[:256].encode("ascii", "ignore").decode()
    return tuple(word.lower() for word in _WORD.findall(plain)[:16])


@lru_cache(maxsize=8_192)
def named_role(tool: str, argument: str) -> tuple[TextRole, int]:
    """What the names alone say: a role, and how sure that is (0 to 60)."""
    words = words_of(argument)
    for word in reversed(words):
        role = _BY_WORD.get(word)
        if role is None:
            continue
        if word == "search" or role == "query_fragment":
            return "query_fragment", 40
        return role, 60 if role in {"command", "sql", "path", "url"} else 50
    tool_words = set(words_of(tool))
    if "query" in words or "q" in words or not words:
        if tool_words & _SQL_TOOL:
            return "sql", 50
        return "query_fragment" if "query" in words or "q" in words else "unknown", 20
    return "unknown", 0


@lru_cache(maxsize=8_192)
def executes(tool: str) -> TextRole | None:
    """What a tool executes by its name: commands, SQL or code; `None` where the name does not say."""
    words = words_of(tool)
    found = set(words)
    if found & _SQL_TOOL:
        return "sql"
    if found & _CODE_TOOL:
        return "code"
    if found & {"bash", "shell", "terminal", "sh", "cmd", "powershell", "console", "command"}:
        return "command"
    return None
