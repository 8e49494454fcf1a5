"""Which way to look at a call: the registry's word, else what its arguments are for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from aegis.core.pointer import escape
from aegis.core.previewing import FileOperation, ToolPreview
from aegis.facts.lexicon import words_of
from aegis.facts.roles import role_of

_OPERATIONS: Final[tuple[tuple[FileOperation, frozenset[str]], ...]] = (
    ("append", frozenset({"append"})),
    ("delete", frozenset({"delete", "remove", "unlink", "rm", "rmdir"})),
    ("move", frozenset({"move", "rename", "mv"})),
    ("copy", frozenset({"copy", "cp", "duplicate"})),
    ("mkdir", frozenset({"mkdir"})),
    ("write", frozenset({"write", "save", "create", "overwrite", "put", "edit"})),
)
_CWD: Final = frozenset({"cwd", "workdir", "working", "directory", "dir"})
_TARGET: Final = frozenset({"to", "target", "destination", "dest", "dst", "new"})
_BODY: Final = frozenset({"body", "data", "payload", "json", "content"})


def chosen(tool: str, arguments: Mapping[str, Any], declared: ToolPreview | None) -> ToolPreview | None:
    """How to look at the call, with a pointer for everything that is needed; `None` where nothing says."""
    guessed = _guess(tool, arguments)
    if declared is None:
        return guessed
    if guessed is None or guessed.kind != declared.kind:
        return declared
    return ToolPreview(
        kind=declared.kind,
        operation=declared.operation or guessed.operation,
        arguments={**guessed.arguments, **declared.arguments},
        title=declared.title,
        fields=declared.fields,
        url=declared.url,
    )


def _guess(tool: str, arguments: Mapping[str, Any]) -> ToolPreview | None:
    roles = {name: role_of(tool, f"/{escape(name)}", name, _words(value), {})[0] for name, value in arguments.items()}
    found: dict[str, str] = {}
    for name, role in roles.items():
        found.setdefault(role, f"/{escape(name)}")
    named = {frozenset(words_of(name)): f"/{escape(name)}" for name in arguments}
    if "command" in found:
        return ToolPreview(kind="shell", arguments={"command": found["command"], **_one(named, _CWD, "cwd")})
    if "sql" in found:
        return ToolPreview(kind="sql", arguments={"statement": found["sql"]})
    operation = _operation(tool)
    paths = [f"/{escape(name)}" for name, role in roles.items() if role == "path"]
    if operation is not None and paths:
        return _file(operation, paths, named, roles)
    if "url" in found:
        extra = {key: f"/{escape(key)}" for key in ("method", "headers") if key in arguments}
        return ToolPreview(kind="http", arguments={"url": found["url"], **extra, **_one(named, _BODY, "body")})
    return None


def _file(
    operation: FileOperation, paths: list[str], named: Mapping[frozenset[str], str], roles: Mapping[str, str]
) -> ToolPreview:
    target = _one(named, _TARGET, "to").get("to")
    others = [path for path in paths if path != target]
    pointers = {"path": others[0] if others else paths[0]}
    if operation in ("move", "copy"):
        second = target or (paths[1] if len(paths) > 1 else None)
        if second is not None:
            pointers["to"] = second
    content = next((f"/{escape(name)}" for name, role in roles.items() if role in ("content", "code")), None)
    if operation in ("write", "append") and content is not None:
        pointers["content"] = content
    return ToolPreview(kind="file", operation=operation, arguments=pointers)


def _operation(tool: str) -> FileOperation | None:
    words = frozenset(words_of(tool))
    return next((operation for operation, known in _OPERATIONS if words & known), None)


def _one(named: Mapping[frozenset[str], str], known: frozenset[str], key: str) -> dict[str, str]:
    return next(({key: pointer} for words, pointer in named.items() if words & known), {})


def _words(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return str(value[0])
    return value if isinstance(value, str) else ""
