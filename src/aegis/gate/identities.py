"""What the files that a call names are at this moment: where links lead, which inode, which bytes of a program.

A held call is bound to them, so that nobody exchanges a script or a link between the yes and the call
(CWE-367). Absolute paths are looked up on this machine; relative ones belong to a process that is not ours.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from aegis.core.digest import sha256
from aegis.errors import InvalidCall
from aegis.facts import extract
from aegis.facts.model import Limits
from aegis.guards.scope.touch import touch

MAX_FILES: Final = 64  # files looked at for one call: bounds the work that a hostile call can ask for
MAX_SHOWN: Final = 200  # characters of a path that a refusal names
MAX_PROGRAM: Final = 4 * 1_048_576  # bytes of a program that are digested; larger ones are told by size and time


def identities_of(arguments: dict[str, Any], limits: Limits) -> str | None:
    """The digest over every file that the arguments name; `None` where they name none."""
    found = sorted({tuple(_identity(path, runs)) for path, runs in _files(arguments, limits)})
    return sha256(orjson.dumps(found)) if found else None


def check_leads_below(held: dict[str, Any], changed: dict[str, Any], limits: Limits) -> None:
    """Guarantee that every file of `changed` lies, through every link, where a file of `held` leads, or below it.

    Raises `InvalidCall` (`not_narrower`) naming the path: a link below a folder can lead out of it (CWE-59).
    """
    known = [real for path, _ in _files(held, limits) if (real := _real(path)) is not None]
    for path, _ in _files(changed, limits):
        real = _real(path)
        if real is None or not any(real.is_relative_to(one) for one in known):
            raise InvalidCall(
                f"`{path[:MAX_SHOWN]}` leads out of what the held call names",
                code="not_narrower",
                hint="an approver only takes away; deny the call, and its agent can ask for another one",
            )


def _real(path: str) -> Path | None:
    """Where a path leads; `None` for a circle of links, or a home of nobody."""
    try:
        return Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        return None


def _files(arguments: dict[str, Any], limits: Limits) -> list[tuple[str, bool]]:
    """Absolute paths, each with whether a command names it."""
    touched = touch(arguments, extract(arguments, limits).strings, sends=False)
    found: dict[tuple[str, bool], None] = {}
    for _, names in touched.resources.get("paths", ()):
        for segments in names:
            if segments[:1] in (("/",), ("~",)):
                found[(str(Path(*segments)), False)] = None
    for _, names in touched.resources.get("commands", ()):
        for words in names:
            found.update(((word, True), None) for word in _paths_in(words))
    return list(found)[:MAX_FILES]


def _paths_in(words: tuple[str, ...]) -> Iterator[str]:
    for word in words:
        value = word.partition("=")[2] if word.startswith("-") else word  # `--file=/path`
        if value.startswith(("/", "~/")) and "\0" not in value:
            yield value


def _identity(path: str, runs: bool) -> Iterator[str]:
    """The path, where it leads, and what stands there; what cannot be looked at is said to be so."""
    yield path
    try:
        real = Path(path).expanduser().resolve()
        yield str(real)
        found = real.stat()
    except FileNotFoundError:
        yield "absent"
        return
    except (OSError, RuntimeError, ValueError) as error:
        yield f"unreadable:{type(error).__name__}"
        return
    yield f"{found.st_dev}:{found.st_ino}:{stat.S_IFMT(found.st_mode):o}"
    if stat.S_ISREG(found.st_mode) and (runs or found.st_mode & 0o111):
        yield _content(real, found)


def _content(real: Path, found: os.stat_result) -> str:
    if found.st_size > MAX_PROGRAM:
        return f"{found.st_size}:{found.st_mtime_ns}"
    try:
        return hashlib.sha256(real.read_bytes()).hexdigest()
    except OSError as error:
        return f"unreadable:{type(error).__name__}"
