"""What one SQL statement would touch, tried on the database that the operator set aside for previews."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import orjson

from aegis.approvals.preview.postgres import try_on_postgres
from aegis.approvals.preview.statement import Engine, Refused, check_statement
from aegis.core.previewing import Looked, Preview, no_preview
from aegis.errors import KeyFileError, SandboxUnavailable
from aegis.keys.reference import read_secret
from aegis.sandbox import Box, Limits, Mount, run, unavailable
from aegis.sandbox.python import python_line

MAX_DATABASE: Final = 1_073_741_824  # bytes of a SQLite file that is copied for one look
_PAGES: Final = 1_024  # copied at a time, so that writers of the original are not held up
_CHILD: Final = Path(__file__).with_name("sqlite_child.py")


def statement(look: Looked, text: str) -> Preview:
    """The rows per table that `text` would touch, the rows that it would give, and its plan."""
    try:
        database = _database(look.rules.database)
    except KeyFileError as error:
        return no_preview(str(error), "sql")
    if not database:
        return no_preview("no database for previews is configured", "sql")
    engine: Engine = "sqlite" if database.startswith("sqlite:") else "postgres"
    try:
        kind, removed = check_statement(text, engine, look.rules.statements)
        if engine == "sqlite":
            effect = _on_sqlite(look, database.removeprefix("sqlite:///"), text, removed)
        else:
            effect = try_on_postgres(look.rules, database, text, kind=kind, removed=removed)
    except (Refused, SandboxUnavailable) as refused:
        return no_preview(str(refused), "sql")
    if "error" in effect:
        return Preview(state="failed", kind="sql", why=f"the preview failed: {effect['error']}")
    return Preview(state="done", kind="sql", effect={"engine": engine, "statement": kind, **effect})


def _database(named: str) -> str:
    """The URL of the database: written in the configuration, or found where a reference leads."""
    return read_secret(named).reveal() if named.startswith(("${env:", "file:")) else named


def _on_sqlite(look: Looked, path: str, text: str, removed: str) -> dict[str, Any]:
    why = unavailable()
    if why is not None:
        raise SandboxUnavailable(why)
    place = tempfile.mkdtemp(prefix="aegis-sql-")
    try:
        _copy(path, f"{place}/database")
        line, mounts = python_line(_CHILD)
        asked = {"database": "/data/database", "statement": text, "removed": removed}
        box = Box(mounts=(*mounts, Mount(source=place, target="/data", writable=True)))
        finished = run(line, box, _limits(look), stdin=orjson.dumps(asked))
    finally:
        shutil.rmtree(place)
    if finished.ended != "exited":
        return {"error": f"the statement was ended: `{finished.ended}`"}
    try:
        answer: dict[str, Any] = orjson.loads(finished.stdout)
    except ValueError:
        return {"error": "the statement gave no answer"}
    return answer


def _copy(path: str, target: str) -> None:
    """A consistent copy of a database that others may be writing; raises `Refused` where there is none to be had."""
    try:
        if os.stat(path).st_size > MAX_DATABASE:  # noqa: PTH116
            raise Refused("the database for previews is too large to be copied")
        with (
            closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy, pages=_PAGES)
    except (OSError, sqlite3.Error) as error:
        raise Refused("the database for previews cannot be read") from error


def _limits(look: Looked) -> Limits:
    rules = look.rules
    return Limits(seconds=rules.seconds, cpu_seconds=max(1, int(rules.seconds)), memory_bytes=rules.memory_bytes)
