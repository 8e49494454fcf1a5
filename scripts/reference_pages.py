"""Writes the pages of `docs/reference` that are made from code; `--check` only says which of them differ."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from reference import (
    aarm,
    claims,
    command_line,
    errors,
    frameworks,
    guards,
    http_api,
    metrics,
    profiles,
    python_api,
    receipt,
    rules,
    words,
)

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "reference"
PAGES: Final[dict[str, Callable[[], str]]] = {
    "aarm.md": aarm.render,
    "claims.md": claims.render,
    "command-line.md": command_line.render,
    "errors.md": errors.render,
    "frameworks.md": frameworks.render,
    "guards.md": guards.render,
    "http-api.md": http_api.render,
    "metrics.md": metrics.render,
    "profiles.md": profiles.render,
    "python.md": python_api.render,
    "receipt.md": receipt.render,
    "rules.md": rules.render,
    "words.md": words.render,
}


def _formatted(text: str, path: Path) -> str:
    """The page with its Python as all of it is written here."""
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--quiet", "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: reference_pages.py [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, render in PAGES.items():
        path = FOLDER / name
        text = _formatted(render(), path)
        if path.is_file() and path.read_text() == text:
            continue
        if check:
            stale.append(name)
        else:
            path.write_text(text)
            print(f"wrote docs/reference/{name}")
    for name in stale:
        print(f"docs/reference/{name} differs from the code; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
