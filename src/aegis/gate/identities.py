"""What the files that a call names are at this moment: where links lead, which inode, which bytes of a program.

A held call is bound to them, so that nobody exchanges a script, a link or the working directory between the yes and
the call (CWE-367). Paths are looked up on this machine; relative ones below the caller's working directory, where it
is known. What is not covered is said.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from aegis.core.canonical import sha256
from aegis.detect import extract
from aegis.detect.facts import ReadLimits
from aegis.detect.touch.paths import MAX_CHARS
from aegis.detect.touch.touch import touch
from aegis.errors import InvalidCall

MAX_FILES: Final = 64  # files looked at for one call: bounds the work that a hostile call can ask for
MAX_SHOWN: Final = 200  # characters of a path that a refusal names
MAX_PROGRAM: Final = 4 * 1_048_576  # bytes of a program that are digested; larger ones are told by size and time
_CHUNK: Final = 65_536


class Bound(NamedTuple):
    """The digest over every file that a call names, `None` where it names none; `complete`: none was left out."""

    digest: str | None
    complete: bool


def identities_of(arguments: dict[str, Any], limits: ReadLimits, base: str) -> Bound:
    """What the files that the arguments name are now; relative ones start at `base`, unless that is empty."""
    files, complete = _files(arguments, limits, base)
    found = sorted({tuple(_identity(path, runs)) for path, runs in files})
    return Bound(sha256(orjson.dumps(found)) if found else None, complete)


def check_leads_below(held: dict[str, Any], changed: dict[str, Any], limits: ReadLimits, base: str) -> None:
    """Guarantee that every file of `changed` lies, through every link, where a file of `held` leads, or below it.

    Raises `InvalidCall` (`not_narrower`) naming the path: a link below a folder can lead out of it (CWE-59).
    """
    known = [real for path, _ in _files(held, limits, base)[0] if (real := _real(path)) is not None]
    for path, _ in _files(changed, limits, base)[0]:
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


def _files(arguments: dict[str, Any], limits: ReadLimits, base: str) -> tuple[list[tuple[str, bool]], bool]:
    """Paths, each with whether a command names it; and whether these are all."""
    texts = extract(arguments, limits).strings
    touched = touch(arguments, texts, sends=False)
    values = {text.path: text.value for text in texts if not text.is_key}
    run = {pointer for pointer, _ in touched.resources.get("commands", ())}
    commands = [words for _, names in touched.resources.get("commands", ()) for words in names]
    found: dict[tuple[str, bool], None] = {}
    for pointer, names in touched.resources.get("paths", ()):
        redirected = pointer in run
        # As it is written, and as it is read without its dots: behind a link, `..` leads to two places.
        spelled = [] if redirected else [values.get(pointer, "")]
        for path in (*spelled, *("/".join(segments).replace("//", "/", 1) for segments in names)):
            if _is_path(path):
                found.update(dict.fromkeys((one, redirected) for one in _absolute(path, (base,))))
    entered = [words[1] for words in commands if len(words) > 1 and words[0] in ("cd", "pushd")]
    bases = [base, *(place for one in entered[:1] for place in _absolute(one, (base,)))]
    for words in commands:
        for path in _paths_in(words):
            found.update(dict.fromkeys((one, True) for one in _absolute(path, bases)))
    if base and (run or any(path.startswith(f"{base}/") for path, _ in found)):
        found[(base, False)] = None
    known = [(path, runs) for path, runs in found if path.startswith(("/", "~"))]
    whole = len(known) == len(found) <= MAX_FILES and not touched.unreadable and len(entered) < 2
    return known[:MAX_FILES], whole and not any("$" in words for words in commands)


def _absolute(path: str, bases: Iterable[str]) -> Iterator[str]:
    """The path below every base; as it is where it needs none, or where none is known."""
    if path.startswith(("/", "~")):
        yield path
    else:
        yield from (f"{base}/{path}" if base else path for base in bases)


def _is_path(value: str) -> bool:
    drive = value[1:2] == ":" and value[:1].isalpha()
    return bool(value) and len(value) <= MAX_CHARS and "\0" not in value and "://" not in value and not drive


def _paths_in(words: tuple[str, ...]) -> Iterator[str]:
    """Words of a command that can name a file; a program without a slash is looked up elsewhere."""
    for place, word in enumerate(words):
        value = word.partition("=")[2] if word.startswith("-") else word  # `--file=/path`
        if _is_path(value) and value != "$" and (place or "/" in value):
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
    """What a regular file holds, read without waiting and never further than `MAX_PROGRAM`, whatever its size says."""
    if found.st_size > MAX_PROGRAM:
        return f"{found.st_size}:{found.st_mtime_ns}"
    whole, left = hashlib.sha256(), MAX_PROGRAM
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                left -= len(data)
                if left < 0:
                    return "unreadable:endless"
                whole.update(data)
    except OSError as error:
        return f"unreadable:{type(error).__name__}"
    return whole.hexdigest()
