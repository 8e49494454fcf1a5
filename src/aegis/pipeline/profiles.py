"""The packaged profiles: ordinary configuration files that a user's own file is laid over."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from aegis.errors import ConfigError, Problem
from aegis.pipeline.document import Node, read


def policies_folder() -> Path:
    """The folder of ready-made configurations, inside the wheel or beside the source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_data" / "policies", package.parent.parent / "policies"):
        if folder.is_dir():
            return folder
    raise ConfigError((Problem(message="this installation lacks its packaged profiles"),))


@cache
def profile(name: str) -> Node:
    """The packaged profile `name`, read once."""
    path = policies_folder() / "profiles" / f"{name}.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError((Problem(message=f"the profile `{name}` cannot be read", file=str(path)),)) from error
    return read(text, file=f"profile {name}")
