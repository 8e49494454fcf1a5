"""Shell commands and file operations, run in a sandbox on a copy of the workspace."""

from __future__ import annotations

import difflib
import os
import posixpath
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from aegis.core.approval import FileOperation, Looked, Preview, no_preview
from aegis.errors import SandboxUnavailable, WorkspaceError
from aegis.sandbox import Box, Finished, Limits, Mount, run, unavailable
from aegis.sandbox.view import FileChange, View, copied, read_folder

# What a run did to its copy of a workspace: every path with its sizes, and a diff of small text files.

MAX_LISTED: Final = 500  # paths shown one by one; all of them are counted
MAX_DIFFS: Final = 20  # files whose difference is shown
MAX_DIFFED: Final = 16_384  # bytes of a file that is compared line by line: the comparison is quadratic
MAX_DIFF: Final = 8_192  # characters of one diff


def changes_of(view: View, workspace: str) -> dict[str, Any]:
    """The changes of one workspace as the approval shows them; nothing that is left out goes without a count."""
    changes = view.changes()
    diffs = 0
    listed: list[dict[str, Any]] = []
    for change in changes[:MAX_LISTED]:
        row: dict[str, Any] = {"path": change.path, "change": change.change, "kind": change.kind}
        for name, size in (("before", change.before), ("after", change.after)):
            if size is not None:
                row[name] = size
        if diffs < MAX_DIFFS and (diff := _diff(view, workspace, change)):
            diffs += 1
            row["diff"] = diff
        listed.append(row)
    counts = {word: sum(change.change == word for change in changes) for word in ("created", "changed", "deleted")}
    return {
        "workspace": workspace,
        **counts,
        "files": listed,
        "left_out": len(changes) - len(listed),
        "digest_before": view.original.digest,
        "digest_after": read_folder(workspace).digest,
    }


def _diff(view: View, workspace: str, change: FileChange) -> str:
    if change.kind != "file":
        return ""
    old = _text(os.path.join(workspace, change.path)) if change.before is not None else ""  # noqa: PTH118
    new = _text(os.path.join(view.folder, change.path)) if change.after is not None else ""  # noqa: PTH118
    if old is None or new is None:
        return ""
    names = (f"a/{change.path}", f"b/{change.path}")
    text = "\n".join(difflib.unified_diff(old.splitlines(), new.splitlines(), *names, lineterm="", n=2))
    return text if len(text) <= MAX_DIFF else text[:MAX_DIFF] + f"\n[{len(text) - MAX_DIFF} further characters]"


def _text(path: str) -> str | None:
    """A small text file, whole; `None` for anything else. Links are not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_DIFFED + 1)
    if len(data) > MAX_DIFFED or b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


# Each is one fixed program; what the call says is an argument or its input, never part of the program.
_OPERATIONS: Final[dict[FileOperation, str]] = {
    "write": 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"',
    "append": 'cat >> "$1"',
    "delete": 'rm -rf -- "$1" && test ! -e "$1"',
    "move": 'mv -- "$1" "$2"',
    "copy": 'cp -a -- "$1" "$2"',
    "mkdir": 'mkdir -p -- "$1"',
}
_WHY: Final = {
    "timeout": "it did not end in time",
    "memory": "it used more memory than a preview may",
    "processes": "it started more processes than a preview may",
    "output": "it wrote more output than a preview may",
    "disk": "it wrote more files than a preview may",
    "cancelled": "the preview was given up",
}


def shell(look: Looked, command: str | Sequence[str], cwd: str | None) -> Preview:
    """What a shell command (or a program with its arguments) would do to the workspace."""
    line = ["/bin/bash", "-c", command] if isinstance(command, str) and Path("/bin/bash").exists() else None
    if line is None:
        line = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
    return _tried(look, "shell", line, cwd, b"")


def file_operation(look: Looked, operation: FileOperation, paths: Sequence[str], content: bytes) -> Preview:
    """What one file operation would do to the workspace."""
    line = ["/bin/sh", "-c", _OPERATIONS[operation], "sh", *paths]
    return _tried(look, "file", line, None, content)


def _tried(look: Looked, kind: str, line: Sequence[str], cwd: str | None, stdin: bytes) -> Preview:
    why = unavailable()
    if why is not None:
        return no_preview(why, kind)
    workspaces = look.mounts or ((look.rules.workspace,) if look.rules.workspace else ())
    if not workspaces:
        return no_preview("no workspace is configured, and the session names no mounts", kind)
    try:
        with ExitStack() as stack:
            views = {place: stack.enter_context(copied(place)) for place in workspaces}
            finished = run(line, _box(look, views, _inside(cwd, workspaces)), _limits(look), stdin=stdin)
            return _shown(look, kind, views, finished)
    except (SandboxUnavailable, WorkspaceError) as error:
        return no_preview(str(error), kind)


def _inside(cwd: str | None, workspaces: Sequence[str]) -> str:
    """Where the program starts: the folder that the call names, if that is inside of a workspace."""
    if cwd is not None:
        place = posixpath.normpath(posixpath.join(workspaces[0], cwd))
        if any(place == one or place.startswith(one.rstrip("/") + "/") for one in workspaces) and Path(place).is_dir():
            return place
    return workspaces[0]


def _box(look: Looked, views: dict[str, View], cwd: str) -> Box:
    mounts = [Mount(source=view.folder, target=place, writable=True) for place, view in views.items()]
    programs = [Mount(source=place, target=place) for place in look.rules.programs]
    path = tuple(f"{place}/bin" for place in look.rules.programs)
    return Box(mounts=(*programs, *mounts), cwd=cwd, path=path)


def _limits(look: Looked) -> Limits:
    rules = look.rules
    return Limits(
        seconds=rules.seconds,
        cpu_seconds=max(1, int(rules.seconds)),
        memory_bytes=rules.memory_bytes,
        output_bytes=rules.output_bytes,
    )


def _shown(look: Looked, kind: str, views: dict[str, View], finished: Finished) -> Preview:
    if finished.ended != "exited":
        return Preview(state="failed", kind=kind, why=f"the preview failed: {_WHY[finished.ended]}")
    effect: dict[str, Any] = {
        "exit_code": finished.code,
        "stdout": finished.stdout.decode("utf-8", "replace"),
        "stderr": finished.stderr.decode("utf-8", "replace"),
        "output_cut": finished.cut,
        "workspaces": [changes_of(view, place) for place, view in views.items()],
    }
    return Preview(state="done", kind=kind, effect=effect)
