"""Links that lead out of where agents work: a path that reads as inside of a folder and is not (CWE-59).

Only folders that the operator names on this machine are looked at, and only paths that read as inside of them: a
path of another machine's agent means nothing here. A link made after the decision is not seen; a held call is bound
to where its paths lead, and a sandbox holds whatever happens.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from typing import Final

from aegis.core.finding import Finding
from aegis.core.outcome import Outcome, Risk
from aegis.guards.base import Case
from aegis.guards.scope.touch import touch

MOST_PATHS: Final = 256  # paths of one call that are followed: each takes system calls
_LONGEST: Final = 4_096  # characters of a path, as the system has it
_DEEPEST: Final = 64  # folders of a path that is followed
Follow = Callable[[str], str | None]


class Links:
    """Finds what leads out of `folders`; relative paths start at the first of them.

    `follow` answers where an absolute path really leads, and `None` for one that cannot be followed.
    """

    def __init__(self, folders: tuple[str, ...], follow: Follow):
        self._folders = folders
        self._real = tuple(real for folder in folders if (real := follow(folder)) is not None)
        self._follow = follow

    def findings(self, case: Case) -> list[Finding]:
        """`block` for each path that reads as inside and is not, that cannot be followed, or is one too many."""
        found: list[Finding] = []
        for number, (pointer, path) in enumerate(self._inside(case)):
            if number == MOST_PATHS:
                found.append(_finding("limit-links", pointer, "the call names more paths than are followed", path))
                break
            real = self._follow(path) if path.count("/") <= _DEEPEST else None
            if real is None or not any(_is_below(real, folder) for folder in self._real):
                found.append(_finding("path-link", pointer, "a link leads out of the folder that agents work in", path))
        return found

    def _inside(self, case: Case) -> Iterator[tuple[str, str]]:
        """The paths that read as inside of a folder, absolute, each with its pointer."""
        seen: set[tuple[str, str]] = set()
        for pointer, value in _named(case, self._folders[0]):
            if not value or len(value) > _LONGEST or "\0" in value or "://" in value or value.startswith("~"):
                continue
            path = posixpath.join(self._folders[0], value)
            read = posixpath.normpath(path)
            if any(_is_below(read, folder) for folder in self._folders) and (pointer, path) not in seen:
                seen.add((pointer, path))
                yield pointer, path


def _named(case: Case, base: str) -> Iterator[tuple[str, str]]:
    """What names a file: arguments that are paths, and the words and redirections of commands."""
    texts = case.facts.texts.strings
    for text in texts:
        if text.role == "path" and not text.is_key:
            yield text.path, text.value
    if not case.facts.vectors and not any(text.role == "command" for text in texts):
        return
    touched = case.touched or touch(case.arguments, texts, sends=False, base=base)
    for pointer, names in touched.resources.get("commands", ()):
        for words in names:
            for word in words[1:]:
                yield pointer, word.partition("=")[2] if word.startswith("-") else word
    for pointer, names in touched.resources.get("paths", ()):
        for segments in names:
            yield pointer, "/".join(segments).replace("//", "/", 1)


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _finding(rule: str, pointer: str, message: str, path: str) -> Finding:
    return Finding(
        guard="content",
        rule=rule,
        category="resource_limit" if rule.startswith("limit-") else "path_traversal",
        severity=Risk.HIGH,
        outcome=Outcome.BLOCK,
        path=pointer,
        message=message,
        evidence=path[:200],
    )
