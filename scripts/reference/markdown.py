"""Pieces of Markdown."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence

NOTE = "<!-- Made by `make docs` from the code. Change the code, not this page. -->"


def page(title: str, *parts: str) -> str:
    """A whole generated page."""
    return "\n\n".join([f"# {title}", NOTE, *(part.strip("\n") for part in parts if part)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are one line, and a bar inside one is escaped."""
    lines = [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"


def code(text: str, language: str = "") -> str:
    """A fenced block."""
    return f"```{language}\n{text.rstrip()}\n```"


def paragraphs(docstring: str | None) -> str:
    """A docstring as Markdown: indentation removed, indented pieces fenced."""
    if not docstring:
        return ""
    out: list[str] = []
    for block in inspect.cleandoc(docstring).split("\n\n"):
        lines = block.splitlines()
        if lines[0] == "Args:":
            out.append("\n".join(_arguments(lines[1:])))
        elif all(line.startswith("    ") or not line for line in lines):
            out.append(code("\n".join(line[4:] for line in lines)))
        else:
            out.append(" ".join(line.strip() for line in lines))
    return "\n\n".join(out)


def _arguments(lines: Sequence[str]) -> list[str]:
    """The arguments of a docstring as a list; a line that is indented further belongs to the one before."""
    out: list[str] = []
    for line in lines:
        if line.startswith("        ") and out:
            out[-1] += f" {line.strip()}"
        else:
            name, _, text = line.strip().partition(": ")
            out.append(f"- `{name}`: {text}")
    return out
