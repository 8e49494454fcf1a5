"""What is known of files that a text or a session writes: the texts that each may hold.

A file that is written again holds the new text where the write is sure to happen and its writer is the one before; else
it may hold either, and whoever runs it is judged by both.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from aegis.core.patterns import Lazy

MAX_FLOW: Final = 16_384  # characters of one text that is known: nothing reads more of it
MOST_FILES: Final = 1_024  # files of one call or session: what a flood of names makes us hold
_MOST_VERSIONS: Final = 8  # texts that one file may hold
_MOST_NAMES: Final = 32  # names that one text carries
LOCAL: Final = 1
UNKNOWN_GAP: Final = 2


class FileFlow(NamedTuple):
    """What goes from one command to another, or into a file: the text that is known of it, and whether that is all.

    `gap` is 0 where it is all, 1 where the rest is what files hold that were there before, and 2 where nobody can know
    the rest: what a program prints, a download, or too much. `files` are the names of the files of a gap.
    """

    text: str = ""
    gap: int = 0
    files: tuple[str, ...] = ()

    def then(self, other: FileFlow) -> FileFlow:
        """The one and the other behind it."""
        text = self.text + other.text
        gap = max(self.gap, other.gap, UNKNOWN_GAP if len(text) > MAX_FLOW else 0)
        return FileFlow(text[:MAX_FLOW], gap, tuple(dict.fromkeys((*self.files, *other.files)))[:_MOST_NAMES])

    def with_text(self, text: str) -> FileFlow:
        """The same with another text, cut where it is too long."""
        return FileFlow(text[:MAX_FLOW], UNKNOWN_GAP if len(text) > MAX_FLOW else self.gap, self.files)


EMPTY: Final = FileFlow()
UNKNOWN: Final = FileFlow("", UNKNOWN_GAP)


def local(name: str) -> FileFlow:
    """What a file holds that was there before."""
    return FileFlow("", LOCAL, (name,))


class Written(NamedTuple):
    """One write to a file. `sure` says that nothing can keep it from happening once the call runs.

    `replaces` is the text that an edit takes out, empty for every other write.
    """

    path: str
    flow: FileFlow
    append: bool = False
    sure: bool = False
    replaces: str = ""


def writes_of(texts: Sequence[tuple[str, str]], opened: Mapping[str, int], hole: str) -> list[Written]:
    """The writes of a program by the texts that are known, each with its file, and by how often it opens each file.

    `hole` stands for what is not known. A file is known as a whole where it is opened once, and one text is written to
    it that is known as a whole.
    """
    many = Counter(path for path, _ in texts)
    found = []
    for path, text in texts:
        is_whole = many[path] == 1 and opened.get(path) == 1 and hole not in text
        found.append(Written(path, FileFlow(text.replace(hole, "VALUE")[:MAX_FLOW], 0 if is_whole else UNKNOWN_GAP)))
    return found


_SETTINGS: Final = Lazy(
    r"^(?:\s*(?:#[^\n]*|export\s+\w+=[^\n;&|`]*|alias\s+\w+=[^\n;&|`]*|(?:setopt|bindkey|autoload|complete)\s[^\n;&|`]*)?(?:\n|$))+$"
)
_MODES: Final = frozenset("rwaxbt+")  # in which a file is opened, which is no text of it
_OF_SHELLS: Final = frozenset({".bashrc", ".zshrc", ".profile", ".bash_profile", ".zprofile", ".bash_aliases"})


def only_sets(
    paths: Iterable[str], texts: Sequence[tuple[str, str]], opened: Mapping[str, int], put: int, hole: str
) -> bool:
    """Whether all that files of a person's shell get are known settings, which are read as what a tool writes.

    `put` are the calls that write to the one file that is opened, if it is one.
    """
    told = Counter(path for path, text in texts if hole not in text and _SETTINGS.search(text))
    known = Counter(path for path, text in texts if not _MODES.issuperset(text))
    return all(
        path.rpartition("/")[2] in _OF_SHELLS and told[path] >= max(known[path], opened.get(path, 1), put)
        for path in paths
    )


class _Version(NamedTuple):
    flow: FileFlow
    writer: str


class Files:
    """The files that were written so far, with every text that each may hold."""

    def __init__(self) -> None:
        self._versions: dict[str, list[_Version]] = {}
        self._named: dict[str, list[str]] = {}  # the paths of each last name
        self.full = False
        self.running: set[tuple[str, FileFlow | None]] = set()  # which files are being read as programs now

    def copy(self) -> Files:
        """The same files; what is written to one of the two is not seen in the other."""
        other = Files()
        other._versions = {path: list(versions) for path, versions in self._versions.items()}
        other._named = {name: list(paths) for name, paths in self._named.items()}
        other.full = self.full
        return other

    def write(self, written: Written, writer: str = "") -> None:
        """Take in one write."""
        path = normal(written.path)
        versions = self._versions.get(path)
        if versions is None:
            if len(self._versions) >= MOST_FILES:
                self.full = True
                return
            versions = self._versions[path] = []
            self._named.setdefault(last_name(path), []).append(path)
        flow = written.flow
        if written.append or written.replaces:
            before = versions or [_Version(local(path), writer)]
            changed = [_Version(_changed(one.flow, written), writer) for one in before]
            versions[:] = changed if written.sure else _distinct([*versions, *changed])
        elif written.sure:
            versions[:] = [*(one for one in versions if one.writer != writer), _Version(flow, writer)]
        else:
            versions[:] = _distinct([*versions, _Version(flow, writer)])
        if len(versions) > _MOST_VERSIONS:
            versions[:] = [_Version(UNKNOWN, ""), *versions[-_MOST_VERSIONS:]]

    def find(self, path: str) -> list[FileFlow]:
        """Every text that the file of that name may hold; none for a file that nobody wrote.

        A relative name may stand for any path that ends with it: nobody knows the folder that it starts from.
        """
        path = normal(path)
        found = [
            version.flow
            for known in self._named.get(last_name(path), ())
            if known == path or _ends_with(known, path) or _ends_with(path, known)
            for version in self._versions[known]
        ]
        return [UNKNOWN] if self.full and not found else found

    def add(self, writes: Iterable[Written], writer: str) -> None:
        """Take in the writes of one call."""
        for written in writes:
            self.write(written, writer)


def _changed(before: FileFlow, written: Written) -> FileFlow:
    """What a file holds after an edit or an addition."""
    if written.append:
        return before.then(written.flow)
    if written.replaces in before.text:
        edited = before.with_text(before.text.replace(written.replaces, written.flow.text))
        return FileFlow(edited.text, max(edited.gap, written.flow.gap), edited.files)
    # The place of the edit is not known: what was put in stands on lines of its own.
    return before.then(FileFlow("\n")).then(written.flow)


def _distinct(versions: list[_Version]) -> list[_Version]:
    return list(dict.fromkeys(versions))


def normal(path: str) -> str:
    """A path in one spelling: without `./`, doubled slashes and what goes up again."""
    path = path.replace("\\", "/") if "/" not in path else path
    return posixpath.normpath(path).removeprefix("//")


def last_name(path: str) -> str:
    """The last part of a path."""
    return path.rsplit("/", 1)[-1]


def _ends_with(path: str, tail: str) -> bool:
    return not tail.startswith("/") and path.endswith(f"/{tail}")
