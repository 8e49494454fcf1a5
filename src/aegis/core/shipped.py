"""Where the files lie that ship with Aegis: rules, policies, and the data of `data/`."""

from __future__ import annotations

from pathlib import Path

from aegis.errors import ConfigError, Problem


def shipped_folder(name: str) -> Path:
    """The folder `name` of the source tree (`rules`, `data/tools`), or what the wheel made of it.

    Raises `ConfigError` where the installation lacks it.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "_data" / Path(name).name, package.parent.parent / name):
        if folder.is_dir():
            return folder
    raise missing(name)


def missing(name: str) -> ConfigError:
    """What is raised where an installation lacks `name`, or what has to stand in it."""
    return ConfigError((Problem(message=f"{name} is missing from this installation; install it again"),))
