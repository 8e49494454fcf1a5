"""Ordinary calls out of public repositories: what their authors would have agents write, edit and run.

A call is a piece of a file, as one that writes, edits or runs it, or a block of a document that says a command. Which
files, which pieces and which tools is chosen by hashes, so that the same checkouts give the same calls. The
repositories, their licences and the commits that were learned from stand in `ordinary.json`; the calls themselves are
kept nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from subprocess import run
from typing import Final

import msgspec

from benchmarks.calls.examples import Example

LISTED: Final = Path(__file__).parent / "ordinary.json"
MOST_FILES: Final = 160  # of a kind in one repository
MOST_PLAIN: Final = 20  # files of plain data
LONGEST: Final = 200_000  # characters of a file
MOST_BLOCKS: Final = 6  # of a document
KINDS: Final = {
    "py": "python", "js": "javascript", "ts": "typescript", "go": "go", "rb": "ruby", "php": "php", "rs": "rust",
    "java": "java", "cs": "csharp", "kt": "kotlin", "sh": "bash", "bash": "bash", "zsh": "zsh", "fish": "fish",
    "ps1": "powershell", "psm1": "powershell", "bat": "cmd", "cmd": "cmd", "sql": "sql", "tf": "terraform",
    "yml": "yaml", "yaml": "yaml", "lua": "lua", "pl": "perl", "json": "json", "md": "document",
    "dockerfile": "dockerfile", "makefile": "makefile", "jenkinsfile": "jenkinsfile",
}  # fmt: skip
FENCED: Final = {
    "sh": "bash", "bash": "bash", "shell": "bash", "console": "bash", "powershell": "powershell", "ps1": "powershell",
    "cmd": "cmd", "bat": "cmd", "python": "python", "py": "python", "js": "javascript", "javascript": "javascript",
    "sql": "sql",
}  # fmt: skip
FILED: Final = frozenset({"yaml", "terraform", "dockerfile", "makefile", "json", "jenkinsfile"})  # that nobody runs
FENCE: Final = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINE: Final = re.compile(r"^`([^`\n]+)`$", re.MULTILINE)  # a command that a document says in a line of its own
FILLED_IN: Final = re.compile(r"\{\{(?:\[([^|\]]*)\|[^\]]*\]|([^}]*))\}\}")  # what a reader fills in or chooses
WRITERS: Final = (
    ("write_file", "path", "content"), ("Write", "file_path", "content"), ("create_file", "path", "file_text"),
    ("write_to_file", "path", "content"), ("fs_write", "filename", "text"),
)  # fmt: skip
EDITORS: Final = (
    ("edit_file", "path", "old_string", "new_string"), ("Edit", "file_path", "old_string", "new_string"),
    ("str_replace", "path", "old_str", "new_str"),
)  # fmt: skip
RUNNERS: Final = {
    "bash": (
        ("bash", "command"), ("run_command", "command"), ("shell", "cmd"), ("execute_command", "command"),
        ("terminal", "input"),
    ),
    "powershell": (("powershell", "command"), ("run_powershell", "script"), ("pwsh", "command")),
    "cmd": (("cmd", "command"), ("run_cmd", "command")),
    "sql": (("run_sql", "query"), ("execute_sql", "sql"), ("query", "sql")),
}  # fmt: skip


class Repository(msgspec.Struct, frozen=True):
    """One repository, the commit that was learned from, and its licence; `under` which folder, and how many files."""

    name: str
    commit: str
    licence: str
    under: str = ""
    most: int = MOST_FILES  # of a kind


def ordinary(folder: Path) -> Iterator[Example]:
    """The calls of all repositories, of which clones lie in `folder` as `owner/name`; raises `OSError` for one less."""
    for repository in msgspec.json.decode(LISTED.read_bytes(), type=list[Repository]):
        clone = folder / repository.name
        if not clone.is_dir():
            raise FileNotFoundError(f"{clone}: clone https://github.com/{repository.name} there")
        yield from _of(clone, repository)


def _of(clone: Path, repository: Repository) -> Iterator[Example]:
    commit = repository.commit
    kinds: dict[str, list[str]] = {}
    for path in _git(clone, "ls-tree", "-r", "--name-only", commit).splitlines():
        if not path.startswith(repository.under):
            continue
        name = path.rsplit("/", 1)[-1]
        kind = KINDS.get(name.rsplit(".", 1)[-1].lower())
        if kind is not None and "vendor/" not in path and "node_modules" not in path and "lock" not in name:
            kinds.setdefault(kind, []).append(path)
    for kind, paths in kinds.items():
        for path in sorted(paths, key=_hash)[: MOST_PLAIN if kind == "json" else repository.most]:
            text = _git(clone, "show", f"{commit}:{path}")
            if not text.strip() or len(text) > LONGEST:
                continue
            if kind == "document":
                yield from _said_in(text, "cmd" if "/windows/" in path else "bash")
            else:
                yield _from_file(kind, path, _piece(text, path))


def _said_in(document: str, shell: str) -> Iterator[Example]:
    """The blocks and lines of a document that are programs; a line without a language is one of the `shell`."""
    for line in list(LINE.finditer(document))[:MOST_BLOCKS]:
        yield _run(shell, FILLED_IN.sub(lambda found: found.group(1) or found.group(2), line.group(1)))
    for found in list(FENCE.finditer(document))[:MOST_BLOCKS]:
        kind = FENCED.get(found.group(1).lower())
        if kind is not None:
            yield _run(kind, found.group(2))


def _from_file(kind: str, path: str, piece: str) -> Example:
    way = _hash(f"{path} as") % 4
    if way < 2 or kind in FILED:
        tool, place, content = WRITERS[_hash(piece) % len(WRITERS)]
        return Example(tool=tool, good={place: path, content: piece})
    lines = piece.split("\n")
    if way == 2:
        tool, place, old, new = EDITORS[_hash(piece) % len(EDITORS)]
        before = "\n".join(lines[: len(lines) // 2][:12])
        return Example(tool=tool, good={place: path, old: before, new: "\n".join(lines[:12])})
    return _run(kind, "\n".join(lines[: 3 + _hash(f"{path} of") % 25]))


def _run(kind: str, program: str) -> Example:
    others = ((f"execute_{kind}", "code"), (kind, "code"), ("run_code", "code"), ("code_interpreter", "code"))
    tools = RUNNERS.get(kind, others)
    tool, argument = tools[_hash(program) % len(tools)]
    return Example(tool=tool, good={argument: program})


def _piece(text: str, path: str) -> str:
    lines, many = text.split("\n"), 8 + _hash(path) % 60
    start = _hash(f"{path} from") % max(1, len(lines) - many)
    return "\n".join(lines[start : start + many])


def _git(clone: Path, *command: str) -> str:
    shown = run(["git", "-C", str(clone), *command], capture_output=True, check=True)
    return shown.stdout.decode("utf-8", "replace")


def _hash(text: str) -> int:
    return int.from_bytes(sha256(text.encode("utf-8", "surrogatepass")).digest()[:4], "big")
