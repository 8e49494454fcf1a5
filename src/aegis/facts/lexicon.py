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
        "str", "string", "replacement", "paragraph", "value", "question", "task", "email",
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


# Names that say of a text no more than that it is one, and tools that carry texts to people.
_ANY_TEXT: Final = frozenset({
    "data", "email", "input", "output", "payload", "str", "string", "text", "value",
})  # fmt: skip
_TO_PEOPLE: Final = frozenset({
    "announce", "answer", "chat", "comment", "discord", "draft", "email", "gmail", "mail", "memo", "message", "notify",
    "outlook", "post", "publish", "reply", "respond", "say", "send", "slack", "sms", "speak", "teams", "telegram",
    "think", "thinking", "tweet", "whatsapp",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def is_for_people(tool: str) -> bool:
    """Whether a tool's name says that its texts go to people."""
    return not _TO_PEOPLE.isdisjoint(words_of(tool))


@lru_cache(maxsize=8_192)
def names_any_text(argument: str) -> bool:
    """Whether an argument's name says no more than that there is some text: `input`, `value`, `user_data`."""
    return next((word for word in reversed(words_of(argument)) if word in _BY_WORD), "") in _ANY_TEXT


# Where text is searched for, or goes to a forge that shows it as it is: nothing executes, renders or obeys it.
_WEB: Final = frozenset({
    "web", "google", "bing", "internet", "duckduckgo", "brave", "tavily", "wikipedia", "docs", "documentation", "arxiv",
    "news", "scholar", "perplexity", "serp", "online",
})  # fmt: skip
_FORGE: Final = frozenset({"issue", "pull", "commit", "pr", "gist", "release", "jira", "ticket", "merge", "git"})
_PATTERNS: Final = frozenset({"regex", "regexp", "pattern", "glob"})


@lru_cache(maxsize=8_192)
def is_inert(tool: str, argument: str, role: TextRole) -> bool:
    """Whether names say that a text is only searched for or filed: patterns, web searches, issues and commits."""
    words = set(words_of(tool))
    if _PATTERNS & set(words_of(argument)):
        return True
    if role == "query_fragment":
        return bool(words & _WEB)
    return role == "content" and bool(words & _FORGE)


_WRITES: Final = frozenset({
    "write", "edit", "create", "save", "update", "patch", "append", "insert", "replace", "apply", "put", "add",
    "commit",
    "overwrite", "modify", "push", "multiedit", "generate", "new",
})  # fmt: skip


@lru_cache(maxsize=8_192)
def writes_by_name(tool: str) -> bool:
    """Whether a tool's name says that it writes."""
    return not _WRITES.isdisjoint(words_of(tool))


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
