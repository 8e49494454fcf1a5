"""Where a deployment keeps its state: a directory that nobody else may enter."""

from __future__ import annotations

import os
from pathlib import Path

from aegis.errors import ConfigError, Problem


def home_dir(home: Path | None = None) -> Path:
    """Find the home to use: the one given, `AEGIS_HOME`, or `~/.aegis`; made with mode 0700 where it is missing.

    Raises `ConfigError` where it is not a directory that only its owner may enter.
    """
    path = home or Path(os.environ.get("AEGIS_HOME") or Path.home() / ".aegis")
    path = path.expanduser().resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError((Problem(message=f"the home cannot be used: {error.strerror}", file=str(path)),)) from error
    if mode & 0o022:
        raise ConfigError(
            (
                Problem(
                    message="the home can be written by others",
                    file=str(path),
                    hint=f"chmod 700 {path}",
                ),
            )
        )
    return path
