"""What a judge can do to find out: run allowed commands, search, read and list, query; all of it in the sandbox.

The operator's list names commands by their first words, compared word by word. There is no shell: what a
judge asks for is one program with arguments, and what its words mean is for that program alone.
"""

from __future__ import annotations

import base64
import json
import os
import posixpath
import shutil
from collections.abc import Sequence
from typing import Any, Final

import orjson

from aegis.core.judging import JudgeSpec
from aegis.judges.door import doors, with_door
from aegis.judges.sqlquery import query_sqlite
from aegis.judges.workspace import Workspace, in_sandbox, limits_of
from aegis.sandbox import Box, Mount

MAX_SHOWN: Final = 32_768  # characters of one result that go back into the conversation
MAX_WORDS: Final = 64
_DOT: Final = "__"  # for the dot, which vendors do not take in a tool's name
_TEXT: Final = {"type": "string"}
# Fixed programs of ours; what the judge says is an argument of theirs.
_READ: Final = ("head", "-c", "262144", "--")
_PATHS: Final = frozenset({"fs.read", "fs.list", "ast_grep.search"})
_LIST: Final = ("find", "-P")


class Refused(Exception):
    """The tool was not run; the message is for the judge."""


DEFINITIONS: Final[dict[str, dict[str, Any]]] = {
    "cmd.run": {
        "description": "Run one allowed program, without a shell, in a read-only copy of the agent's workspace.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "array", "items": _TEXT, "minItems": 1}},
            "required": ["command"],
            "additionalProperties": False,
        },
    },
    "ast_grep.search": {
        "description": "Find code by its syntax with ast-grep.",
        "parameters": {
            "type": "object",
            "properties": {"pattern": _TEXT, "language": _TEXT, "path": _TEXT},
            "required": ["pattern", "language"],
            "additionalProperties": False,
        },
    },
    "fs.read": {
        "description": "Read a file of the workspace.",
        "parameters": {
            "type": "object", "properties": {"path": _TEXT}, "required": ["path"], "additionalProperties": False,
        },
    },
    "fs.list": {
        "description": "List a folder of the workspace.",
        "parameters": {
            "type": "object", "properties": {"path": _TEXT}, "required": ["path"], "additionalProperties": False,
        },
    },
    "sql.query": {
        "description": "Run one SELECT on a read-only database.",
        "parameters": {
            "type": "object", "properties": {"query": _TEXT}, "required": ["query"], "additionalProperties": False,
        },
    },
}  # fmt: skip


def definitions(judge: JudgeSpec) -> list[dict[str, Any]]:
    """The tools of `judge` as a model is told of them, in the shape of chat completions; commands are named."""
    found = []
    for name in judge.tools.names:
        definition = {"name": name.replace(".", _DOT), **DEFINITIONS[name]}
        if name == "cmd.run":
            definition["description"] += " Allowed: " + ", ".join(f"`{one}`" for one in judge.tools.commands) + "."
        found.append({"type": "function", "function": definition})
    return found


def tool_of(name: str) -> str:
    """The tool that a model calls by `name`."""
    return name.replace(_DOT, ".")


def placed(workspace: Workspace, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments` with the path as it is in the sandbox, absolute: what the gate decides is what is opened."""
    path = arguments.get("path", "." if name == "ast_grep.search" else None)
    if name not in _PATHS or not isinstance(path, str) or not path:
        return arguments
    return {**arguments, "path": posixpath.join(workspace.folder, path)}


async def run_tool(judge: JudgeSpec, workspace: Workspace, name: str, arguments: dict[str, Any], seconds: float) -> str:
    """What a tool gives, as text; raises `Refused` for what this judge may not do."""
    if name not in judge.tools.names:
        raise Refused("there is no such tool for this judge")
    box, limits = workspace.box(judge), limits_of(judge, min(seconds, judge.limits.tool_seconds))
    if name == "sql.query":
        return await query_sqlite(judge.tools.sql, _text(arguments, "query"), limits)
    if name == "cmd.run":
        command = allowed_command(judge.tools.commands, arguments.get("command"))
    elif name == "ast_grep.search":
        command, box = _ast_grep(arguments, box)
    elif name == "fs.read":
        command = [*_READ, _text(arguments, "path")]
    else:
        command = [*_LIST, _text(arguments, "path"), "-maxdepth", "2", "-printf", "%y %s %p\\n"]
    hosts = doors(judge) if name == "cmd.run" else ()
    async with with_door(hosts, command, box) as (line, through):
        finished = await in_sandbox(line, through, limits)
    return orjson.dumps(
        {
            "ended": finished.ended,
            "exit_code": finished.code,
            "stdout": _shown(finished.stdout),
            "stderr": _shown(finished.stderr),
            "cut": finished.cut or len(finished.stdout) > MAX_SHOWN or len(finished.stderr) > MAX_SHOWN,
        }
    ).decode()


def allowed_command(allowed: Sequence[str], command: Any) -> list[str]:
    """`command` as words, where its first words are an entry of `allowed`; raises `Refused` otherwise."""
    if not isinstance(command, list) or not command or len(command) > MAX_WORDS:
        raise Refused("a command is a list of words")
    words = [word for word in command if isinstance(word, str)]
    if len(words) != len(command) or any("\0" in word for word in words):
        raise Refused("a command is a list of words")
    for entry in allowed:
        first = entry.split()
        if first and words[: len(first)] == first:
            return words
    raise Refused("this command is not allowed for this judge")


def _ast_grep(arguments: dict[str, Any], box: Box) -> tuple[list[str], Box]:
    program = shutil.which("ast-grep")
    if program is None:
        raise Refused("ast-grep is not installed on this machine")
    inside = "/aegis/ast-grep"
    pattern, language = _text(arguments, "pattern"), _text(arguments, "language")
    path = arguments.get("path", ".")
    if not isinstance(path, str) or path.startswith("-"):
        raise Refused("`path` is not a path")
    command = [inside, "run", f"--pattern={pattern}", f"--lang={language}", "--json=compact", "--", path]
    mount = Mount(source=os.path.realpath(program), target=inside)
    return command, Box(mounts=(*box.mounts, mount), cwd=box.cwd, path=box.path, hidden=box.hidden, network=box.network)


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise Refused(f"`{name}` is not text")
    return "./" + value if value.startswith("-") and name == "path" else value


def _shown(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    if "\0" in text:
        return "[binary] " + base64.b64encode(data[: MAX_SHOWN // 2]).decode()
    return (
        text
        if len(text) <= MAX_SHOWN
        else text[:MAX_SHOWN] + f"\n[{json.dumps(len(text) - MAX_SHOWN)} further characters]"
    )
