"""The folders that agents work in, compiled into what follows links out of them on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aegis.guards.links import Links


def compile_links(folders: Sequence[str]) -> Links | None:
    """What follows links below `folders`; `None` where the operator named none."""
    return Links(tuple(folders), _follow) if folders else None


def _follow(path: str) -> str | None:
    """Where an absolute path really leads; `None` for a circle of links or what the system does not let us follow."""
    try:
        return os.path.realpath(path, strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return os.path.realpath(path)  # what is not there yet, behind the links that are
    except (OSError, ValueError):
        return None
