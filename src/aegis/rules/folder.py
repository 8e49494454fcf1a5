"""Where the rules that ship with Aegis live: inside the wheel, or beside the source tree."""

from __future__ import annotations

from pathlib import Path


def builtin_folder() -> Path:
    """The folder of the built-in rules; raises `FileNotFoundError` where the installation lacks them."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_data" / "rules", package.parent.parent / "rules"):
        if folder.is_dir():
            return folder
    raise FileNotFoundError("the built-in rules are missing from this installation")
