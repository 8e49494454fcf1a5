"""One look at one held call; whatever goes wrong, it ends in a preview that says so."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any, Final

import orjson

from aegis.approvals.preview import programs, sql, summary
from aegis.approvals.preview.choose import chosen
from aegis.approvals.preview.dryrun import DryRuns, by_callable, by_endpoint
from aegis.core.pointer import resolve
from aegis.core.previewing import Looked, Preview, ToolPreview, no_preview

MAX_EFFECT: Final = 1_048_576  # bytes of one preview that are kept with an approval
_log = logging.getLogger("aegis.approvals.preview")


def look_at(look: Looked, dry_runs: DryRuns) -> Preview:
    """What the call would do, as far as that can be seen without doing it. Never raises."""
    began = time.monotonic()
    try:
        preview = _look(look, dry_runs)
        if len(orjson.dumps(preview.effect)) > MAX_EFFECT:
            preview = Preview(state="failed", kind=preview.kind, why="the preview failed: it is too long to be shown")
    except Exception as error:
        _log.exception("a preview failed", extra={"tool": look.tool})
        preview = Preview(state="failed", why=f"the preview failed: `{type(error).__name__}`")
    return replace(preview, seconds=time.monotonic() - began)


def _look(look: Looked, dry_runs: DryRuns) -> Preview:
    if not look.rules.enabled:
        return no_preview("previews are switched off")
    # (1) The tool's own dry run, where the registry says that it has one.
    declared = look.tool_preview
    if look.dryrun:
        dry_run = dry_runs.find(look)
        if dry_run is not None:
            return by_callable(look, dry_run)
        if declared is not None and declared.kind == "endpoint":
            return by_endpoint(look, declared)
    # (2) The registry's word, else what the arguments are for.
    how = chosen(look.tool, look.arguments, declared)
    if how is None or how.kind == "endpoint":
        return no_preview("nothing says how to look at a call of this tool")
    if how.kind == "card":
        return summary.card(look, how)
    return _by_arguments(look, how)


def _by_arguments(look: Looked, how: ToolPreview) -> Preview:
    """The kinds that need particular arguments; one that is not there, or of another type, is said."""
    given = {name: _value(look.arguments, pointer) for name, pointer in how.arguments.items()}
    if how.kind == "shell":
        command = given.get("command")
        if isinstance(command, str) or (isinstance(command, list) and all(isinstance(one, str) for one in command)):
            return programs.shell(look, command, _text(given.get("cwd")))
        return no_preview("the call holds no command", "shell")
    if how.kind == "sql":
        text = _text(given.get("statement"))
        return no_preview("the call holds no statement", "sql") if text is None else sql.statement(look, text)
    if how.kind == "http":
        url, method = _text(given.get("url")), _text(given.get("method")) or "GET"
        if url is None:
            return no_preview("the call holds no address", "http")
        return summary.http(look, method, url, given.get("headers"), given.get("body"))
    paths = [_text(given.get(name)) for name in (("path", "to") if how.operation in ("move", "copy") else ("path",))]
    known = [path for path in paths if path is not None]
    if how.operation is None or len(known) != len(paths):
        return no_preview("the call does not name its files", "file")
    content = given.get("content")
    data = (
        content.encode("utf-8", "replace")
        if isinstance(content, str)
        else b""
        if content is None
        else orjson.dumps(content)
    )
    return programs.file_operation(look, how.operation, known, data)


def _value(arguments: dict[str, Any], pointer: str) -> Any:
    try:
        return resolve(arguments, pointer)
    except (LookupError, ValueError):
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
