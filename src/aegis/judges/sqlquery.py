"""`sql.query`: one SELECT on a copy of the SQLite database that the operator named, in the sandbox."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

import orjson

from aegis.judges.workspace import in_sandbox
from aegis.sandbox import Box, Limits, Mount
from aegis.sandbox.python import python_line

MAX_DATABASE: Final = 1_073_741_824
_CHILD: Final = Path(__file__).with_name("sqlite_select.py")


async def query_sqlite(url: str, text: str, limits: Limits) -> str:
    """The rows, as JSON; an error of the database is the answer, and so is a query that is not one SELECT."""
    place = tempfile.mkdtemp(prefix="aegis-judge-sql-")
    try:
        why = await asyncio.to_thread(_copy, url.removeprefix("sqlite:///"), f"{place}/database")
        if why:
            return orjson.dumps({"error": why}).decode()
        line, mounts = python_line(_CHILD)
        box = Box(mounts=(*mounts, Mount(source=place, target="/data")))
        finished = await in_sandbox(line, box, limits, stdin=orjson.dumps({"query": text}))
    finally:
        shutil.rmtree(place)
    if finished.ended != "exited":
        return orjson.dumps({"error": f"the query was ended: {finished.ended}"}).decode()
    return finished.stdout.decode("utf-8", "replace")


def _copy(path: str, target: str) -> str:
    try:
        if Path(path).stat().st_size > MAX_DATABASE:
            return "the database is too large to be copied"
        with (
            closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copy,
        ):
            source.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
    except (OSError, sqlite3.Error):
        return "the database cannot be read"
    return ""
