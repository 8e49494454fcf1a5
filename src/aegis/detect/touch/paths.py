"""Paths in one spelling: every reading that some system could make of the text (CWE-22, CWE-41, CWE-178).

A path is in scope only where every reading of it is, so that full-width dots, percent escapes,
backslashes, drive letters and dots at the ends of names lead nowhere that a plain spelling would not.
"""

from __future__ import annotations

import unicodedata
from typing import Final
from urllib.parse import unquote

MAX_CHARS: Final = 4_096  # PATH_MAX of Linux: longer text names no file
MAX_ROUNDS: Final = 4  # percent escapes inside percent escapes; deeper ones are refused
_SCHEMES: Final = ("file://", "file:")


def readings(text: str, base: str = "") -> frozenset[tuple[str, ...]] | None:
    """The segments of every reading of a path; `None` for text that no scope can speak about.

    Absolute paths begin with the segment `/`, those below a home with `~`, those on a drive with its
    letter; others are relative, and are read below `base` where there is one.
    """
    if not text or len(text) > MAX_CHARS or not text.isprintable():
        return None
    if _is_plain(text):
        return frozenset({("/", *text[1:].split("/"))})
    spelled = _decoded(text)
    if spelled is None:
        return None
    found: set[tuple[str, ...]] = set()
    for one in spelled:
        for form in {one, one.replace("\\", "/")}:
            segments = _segments(form, base)
            found.add(segments)
            bare = tuple(_bare(part) for part in segments)
            if bare != segments:  # Windows drops dots and blanks at the end of a name
                found.add(_resolved(bare))
    return frozenset(found)


def pattern_segments(text: str, base: str = "") -> tuple[str, ...]:
    """The segments of a path in a scope, which is written by an issuer and read one way."""
    return _segments(text, base)


def _is_plain(text: str) -> bool:
    """Whether an absolute path is read the same way by everybody."""
    return (
        text[0] == "/"
        and text[-1] not in "/. "
        and text.isascii()
        and "%" not in text
        and "\\" not in text
        and ":" not in text
        and "//" not in text
        and "/." not in text
        and "./" not in text
        and " /" not in text
    )


def _decoded(text: str) -> set[str] | None:
    """The text, and what percent decoding and compatibility folding make of it, until nothing changes."""
    found = {text}
    for _ in range(MAX_ROUNDS):
        more = {unicodedata.normalize("NFKC", one) for one in found} | {unquote(one) for one in found}
        if any(not one.isprintable() or "\ufffd" in one for one in more - found):
            return None
        if more <= found:
            return found
        found |= more
        if len(found) > 32:
            return None
    return None


def _segments(text: str, base: str) -> tuple[str, ...]:
    for scheme in _SCHEMES:
        if text[: len(scheme)].lower() == scheme:
            host, slash, rest = text[len(scheme) :].partition("/") if scheme.endswith("//") else ("", "/", "")
            text = f"/{rest}" if scheme.endswith("//") and slash and host in ("", "localhost") else text[len(scheme) :]
            break
    for prefix in ("//?/", "//./", "\\\\?\\", "\\\\.\\"):  # Windows device paths lead to the same files
        text = text.removeprefix(prefix)
    drive = text.lstrip("/")
    if drive[1:2] == ":" and drive[:1].isascii() and drive[:1].isalpha():
        return _resolved((f"{drive[0].lower()}:", *drive[2:].replace("\\", "/").split("/")))
    if text.startswith("/"):
        return _resolved(("/", *text.split("/")))
    if text.startswith("~"):
        return _resolved(tuple(text.split("/")))
    if base:
        return _resolved(("/", *base.split("/"), *text.split("/")))
    return _resolved(tuple(text.split("/")))


def _resolved(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Without empty and `.` segments, `..` carried out; one that leaves its start stays visible."""
    out: list[str] = []
    for part in parts:
        if part in ("", "."):
            continue
        if part == "..":
            if out and out[-1] not in ("..", "~") and not out[-1].endswith(":") and out != ["/"]:
                out.pop()
            elif out != ["/"]:  # above the root is the root
                out.append(part)
        else:
            out.append(part)
    return tuple(out)


def _bare(part: str) -> str:
    """A segment as Windows reads it."""
    if part in ("..", ".", "/", "~"):
        return part
    bare = part.rstrip(". ")
    if bare:
        return bare
    return ".." if part.startswith("..") else "."
