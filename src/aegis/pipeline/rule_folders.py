"""The folders of `rules`: an operator's own detector rules, which nobody else may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aegis.errors import ConfigError, Problem
from aegis.pipeline.config import Config

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def rule_folders(config: Config) -> tuple[Path, ...]:
    """The folders that `config` names, in its order; a relative one lies beside the configuration's file.

    Raises `ConfigError` for a folder that is not there, is named twice, or holds what others can write:
    whoever can change a rule can switch it off.
    """
    problems: list[Problem] = []
    folders: list[Path] = []
    for position, name in enumerate(config.settings.rules):
        where, folder = ("rules", position), _place(config, name)
        if not folder.is_absolute():
            problems.append(config.problem(where, f"`{name}` is relative, and there is no file that it lies beside"))
        elif not folder.is_dir():
            problems.append(config.problem(where, f"there is no folder `{folder}`"))
        elif folder in folders:
            problems.append(config.problem(where, f"`{name}` is named twice"))
        elif (found := _not_trusted(folder)) is not None:
            problems.append(config.problem(where, f"others can write `{found}`", f"chmod go-w {found}"))
        else:
            folders.append(folder)
    if problems:
        raise ConfigError(tuple(problems))
    return tuple(folders)


def rule_files(config: Config) -> list[Path]:
    """The files of an operator's own rules, as they are now; none of a folder that is not there."""
    return [path for name in config.settings.rules for path in _files(_place(config, name))]


def _place(config: Config, name: str) -> Path:
    """Where a folder lies; relative where there is no file of the configuration."""
    return Path(config.file).absolute().parent / name if Path(config.file).is_file() else Path(name)


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.yaml"))


def _not_trusted(folder: Path) -> Path | None:
    """The first of a folder, its families and their rules that somebody else owns or can write."""
    for path in (folder, *sorted(folder.glob("*/")), *_files(folder)):
        status = path.stat()
        if status.st_mode & _OTHERS or status.st_uid not in (0, os.geteuid()):
            return path
    return None
