"""What a run did to its copy of a workspace: every path with its sizes, and a diff of small text files."""

from __future__ import annotations

import difflib
import os
from typing import Any, Final

from aegis.sandbox.folder import read_folder
from aegis.sandbox.view import Change, View

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


def _diff(view: View, workspace: str, change: Change) -> str:
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
