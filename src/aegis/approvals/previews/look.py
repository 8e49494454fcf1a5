"""Looks at every held call, beside the caller: the call is held already, and waits for nobody here.

What a look came to is a receipt of its own, with the effect in its encrypted payload; where there was no
way to look, the reason is kept and nothing is on record. The approval is not touched, so that a look never
stands in the way of a person's answer, and is never one.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from msgspec import structs

from aegis.approvals.previews import programs
from aegis.approvals.previews.dryrun import DryRuns, by_callable, by_endpoint
from aegis.approvals.queue import load, receipt
from aegis.approvals.values import Approval, payload_of, running
from aegis.context.sessions import find_surroundings, key_of_session
from aegis.core.approval import FileOperation, Looked, Preview, ToolPreview, no_preview
from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.json import escape, resolve
from aegis.core.outcome import Outcome
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.text import mask
from aegis.core.times import MICROS
from aegis.detect.roles import role_of, words_of
from aegis.errors import AegisError
from aegis.gate.events import Event, new_id
from aegis.gate.parts import Parts
from aegis.log.writer import Unit

_log = logging.getLogger("aegis.approvals.previews")

# Which way to look at a call: the registry's word, else what its arguments are for.

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


# What cannot be tried is summed up: HTTP requests, and cards for mail, payments and the like.

MAX_SHOWN: Final = 2_000  # characters of one value of a card; the size of what is longer is said


def http(look: Looked, method: str, url: str, headers: Any, body: Any) -> Preview:
    """A request by its method, host, address, masked headers and size; nothing is sent."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return no_preview("the address is not a URL", "http")
    if not host:
        return no_preview("the address names no host", "http")
    effect: dict[str, Any] = {
        "method": method.upper(),
        "scheme": parts.scheme,
        "host": host,
        "port": port or {"https": 443, "http": 80}.get(parts.scheme),
        "path": parts.path or "/",
        "query_bytes": len(parts.query.encode("utf-8", "replace")),
        "addresses": _addresses(host) if look.rules.resolve else "not looked up",
        "body_bytes": _size(body),
    }
    if isinstance(headers, Mapping):
        effect["headers"] = {str(name): mask(str(value)) for name, value in headers.items()}
    return Preview(state="done", kind="http", effect=effect)


def card(look: Looked, how: ToolPreview) -> Preview:
    """The title and fields that the registry asks for, filled from the call; what is missing is said."""
    fields = {name: _field(look.arguments, pointer) for name, pointer in how.fields.items()}
    return Preview(state="done", kind="card", effect={"title": how.title or look.tool, "fields": fields})


def _field(arguments: dict[str, Any], pointer: str) -> Any:
    try:
        value = resolve(arguments, pointer)
    except (LookupError, ValueError, TypeError):
        return {"missing": True}
    text = value if isinstance(value, str) else orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    if len(text) <= MAX_SHOWN:
        return value
    return {"begins": text[:MAX_SHOWN], "characters": len(text)}


def _addresses(host: str) -> list[str] | str:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return "not found"
    return sorted({str(address[4][0]) for address in found})


def _size(body: Any) -> int:
    if body is None:
        return 0
    return len(body.encode("utf-8", "replace")) if isinstance(body, str) else len(orjson.dumps(body))


# One look at one held call; whatever goes wrong, it ends in a preview that says so.

MAX_EFFECT: Final = 1_048_576  # bytes of one preview that are kept with an approval


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
    return structs.replace(preview, seconds=time.monotonic() - began)


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
        return card(look, how)
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
        if text is None:
            return no_preview("the call holds no statement", "sql")
        from aegis.approvals.previews import sql  # its parser takes a tenth of a second to load

        return sql.statement(look, text)
    if how.kind == "http":
        url, method = _text(given.get("url")), _text(given.get("method")) or "GET"
        if url is None:
            return no_preview("the call holds no address", "http")
        return http(look, method, url, given.get("headers"), given.get("body"))
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


COLLECTION: Final = "previews"
WORKERS: Final = 2  # looks at a time: each is a program of its own beside the gate
GRACE_S: Final = 60  # beyond its own time: how long a look may wait for others before it counts as lost
MAX_WAITING: Final = 256  # held calls that wait for a look; beyond it, a call has none


class PreviewWorker:
    """Listens for held calls and looks at each once."""

    def __init__(self, parts: Parts, dry_runs: DryRuns):
        self._parts = parts
        self._dry_runs = dry_runs
        self._lock = threading.Lock()
        self._waiting: set[Future[None]] = set()
        self._threads: ThreadPoolExecutor | None = None
        self._process = 0

    def __call__(self, event: Event) -> None:
        """Start a look where a call was held, or became another one."""
        approval_id, narrowed_by = _held(event)
        if approval_id is None or not self._parts.policy.current.previews.rules.enabled:
            return
        with self._lock:
            if self._threads is None or self._process != os.getpid():  # a forked child has no threads
                self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="aegis-preview")
                self._waiting, self._process = set(), os.getpid()
            if len(self._waiting) >= MAX_WAITING:
                _log.warning("a held call has no preview: too many wait for one")
                return
            job = self._threads.submit(self._look, approval_id, narrowed_by)
            self._waiting.add(job)
        job.add_done_callback(self._waiting.discard)

    def close(self) -> None:
        """Wait for the looks that are under way, each of which has a deadline of its own."""
        with self._lock:
            threads, waiting = self._threads, set(self._waiting)
            self._threads = None
        if threads is not None and self._process == os.getpid():
            for job in waiting:
                job.cancel()
            wait(waiting)
            threads.shutdown()

    def _look(self, approval_id: str, narrowed_by: str | None) -> None:

        try:
            approval, looked = self._looked(approval_id)
            if approval.narrowed_by == narrowed_by:  # else it is another call by now, which has a look of its own
                self._parts.ledger.append(_recorded(approval, look_at(looked, self._dry_runs)))
        except AegisError:  # the store is gone: the approval shows no preview
            _log.exception("a preview could not be recorded")

    def _looked(self, approval_id: str) -> tuple[Approval, Looked]:
        with self._parts.store.reader() as reader:
            approval = load(reader, approval_id)
            arguments = running(self._parts, reader, approval)
            around = find_surroundings(reader, key_of_session(approval.principal, approval.session))
        policy = self._parts.policy.current
        how = policy.previews.find(approval.server, approval.tool)
        return approval, Looked(
            tool=approval.tool,
            server=approval.server,
            arguments=arguments or {},
            mounts=around.mounts,
            dryrun=how.dryrun,
            rules=policy.previews.rules,
            tool_preview=how.preview,
        )


def _held(event: Event) -> tuple[str | None, str | None]:
    """The approval of a call that an event says is to be looked at, and the receipt by which it was narrowed."""
    decision, members = event.decision, event.members
    if event.kind == "decision" and decision is not None and decision.approval is not None:
        return (decision.approval.id if decision.outcome is Outcome.REQUIRE_APPROVAL else None), None
    if event.kind == "approval" and "narrowed_by" in members:
        return members["approval_id"], members["narrowed_by"]
    return None, None


def _key(approval: Approval) -> str:
    """Under what the look at a call is kept: each narrowing makes another call of it."""
    return approval.narrowed_by or approval.id


def _recorded(approval: Approval, preview: Preview) -> Unit:
    if preview.state == "none":
        return _kept(_key(approval), {"preview": preview.to_wire()})
    salt, payload, receipt_id = os.urandom(SALT_BYTES), orjson.dumps(preview.to_wire()), new_id()
    said = receipt(approval, "previewed", receipt_id=receipt_id, principal="gate")
    members = {
        **said.members,
        "parent": approval.narrowed_by or approval.decision_id,
        "preview": {"state": preview.state, "kind": preview.kind or "none", "ms": round(preview.seconds * 1_000)},
        "payload_commitment": payload_commitment(salt, payload),
    }
    return _kept(_key(approval), {"receipt": receipt_id}, Draft(members=members, payload=payload, salt=salt))


def _kept(key: str, body: dict[str, Any], *drafts: Draft) -> Unit:
    document = Document(collection=COLLECTION, key=key, version=1, body=orjson.dumps(body))

    def apply(transaction: Transaction) -> Sequence[Draft]:
        transaction.put_document(document)
        return ()

    return Unit(drafts=drafts, apply=apply)


def preview_of(parts: Parts, reader: Reader, approval: Approval) -> dict[str, Any]:
    """The member `preview` of an approval: the look at the call that is held now."""
    document = reader.document(COLLECTION, _key(approval))
    if document is None:
        return _none_yet(parts, approval)
    kept: dict[str, Any] = orjson.loads(document.body)
    if "preview" in kept:
        shown: dict[str, Any] = kept["preview"]
        return shown
    payload = payload_of(parts, reader, kept["receipt"])
    return {"state": "erased"} if payload is None else payload


def _none_yet(parts: Parts, approval: Approval) -> dict[str, Any]:
    rules = parts.policy.current.previews.rules
    if not rules.enabled:
        return no_preview("previews are switched off").to_wire()
    late = parts.clock() - approval.held_at > (rules.seconds + GRACE_S) * MICROS
    return no_preview("none was recorded in time").to_wire() if late else {"state": "pending"}
