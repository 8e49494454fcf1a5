"""Examples of a Markdown page, run in order as a reader would run them.

A fenced block of `python` or `sh` runs in one directory for the page; `yaml` and others are text. A
comment in front of a block says what is special about it:

    <!-- file: aegis.yaml -->    the block is written to that file (any language)
    <!-- exit: 1 -->             the shell block ends with that code
    <!-- output -->              the block is what the block before printed; `...` stands for anything
    <!-- background -->          the shell block goes on running until the page ends
    <!-- not run: why -->        the block is shown only
"""

from __future__ import annotations

import fnmatch
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from support.shell import aegis_python, stand_in

RUN: Final = {"python", "sh"}
TIMEOUT_S: Final = 60


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: its language, its text, the line it begins at, and the comment in front of it."""

    language: str
    text: str
    line: int
    note: str


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    lines = page.splitlines()
    note, position = "", 0
    while position < len(lines):
        line = lines[position].strip()
        if line.startswith("```"):
            start = position + 1
            position = start
            while lines[position].strip() != "```":
                position += 1
            text = "\n".join(lines[start:position]) + "\n"
            yield Block(language=line[3:].strip(), text=text, line=start, note=note)
            note = ""
        elif line.startswith("<!--") and line.endswith("-->"):
            note = line[4:-3].strip()
        elif line:
            note = ""
        position += 1


@dataclass
class Reader:
    """Runs the blocks of one page in `place`; `close` ends what still runs."""

    place: Path
    printed: str = ""
    done: int = 0
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def run(self, block: Block) -> None:
        """Do what the block says; raises `AssertionError` where it does not do what the page says."""
        kind, _, value = block.note.partition(":")
        if kind == "not run":
            assert value.strip(), f"line {block.line}: say why the block is not run"
        elif kind == "file":
            self._write(value.strip(), block.text)
        elif kind == "output":
            self._compare(block)
        elif kind == "background":
            self.running.append(self._start(block))
        elif block.language in RUN:
            self._finish(block, int(value) if kind == "exit" else 0)
        self.done += 1

    def close(self) -> None:
        for process in self.running:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(TIMEOUT_S)

    def _write(self, name: str, text: str) -> None:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text)
        path.chmod(0o600)

    def _start(self, block: Block) -> subprocess.Popen[str]:
        command = [str(aegis_python()), "-"] if block.language == "python" else ["bash", "-euo", "pipefail", "-s"]
        process = subprocess.Popen(
            command,
            cwd=self.place,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if block.note == "background":
            assert process.stdin is not None
            process.stdin.write(block.text)
            process.stdin.close()
        return process

    def _finish(self, block: Block, code: int) -> None:
        process = self._start(block)
        self.printed, _ = process.communicate(block.text, timeout=TIMEOUT_S)
        assert process.returncode == code, f"line {block.line}: code {process.returncode}\n{self.printed}"

    def _compare(self, block: Block) -> None:
        expected = [line.rstrip() for line in block.text.strip().splitlines()]
        printed = [line.rstrip() for line in self.printed.strip().splitlines()]
        pattern = "\n".join(expected).replace("[", "[[]").replace("...", "*")
        assert fnmatch.fnmatchcase("\n".join(printed), pattern), f"line {block.line}: printed\n{self.printed}"

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AEGIS_")}
        path = os.pathsep.join((str(stand_in().parent), str(Path(sys.executable).parent), kept.get("PATH", "")))
        # Compiled rules are cached for the user: a page with a home of its own would compile them again.
        cache = kept.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        own = {"HOME": str(self.place), "PATH": path, "XDG_CACHE_HOME": cache, "PYTHONPATH": ""}
        return {**kept, **own, "NO_COLOR": "1", "COLUMNS": "120", "AEGIS_QUIET": "1"}
