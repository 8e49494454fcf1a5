"""The folders of `rules`: an operator's own detector rules, which nobody else may write."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aegis.config.config import Config
from aegis.config.document import MAX_BYTES
from aegis.errors import ConfigError, Problem

# Reading a configuration file, which nobody but its owner can write or replace.


def read_trusted(path: Path) -> str:
    """The text of a configuration file that nobody but its owner can write.

    Raises `ConfigError` where others can write the file or put another in its place, where it is
    owned by somebody else, or where it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            data = stream.read(MAX_BYTES + 1)
        text = data.decode()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else type(error).__name__
        raise _refused(path, f"the configuration cannot be read: {reason}") from error
    except UnicodeDecodeError as error:
        raise _refused(path, "the configuration is not UTF-8 text") from error
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "the configuration is not a regular file")
    if status.st_uid not in (0, os.geteuid()):
        raise _refused(path, "the configuration belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refused(path, "others can write the configuration", f"chmod go-w {path}")
    check_folder(path.resolve())
    return text


def check_folder(path: Path) -> None:
    """Guarantee that others cannot put another file in the place of `path`; raises `ConfigError`."""
    mode = path.parent.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        raise _refused(path, "others can replace the configuration", f"chmod go-w {path.parent}")


def _refused(path: Path, message: str, hint: str = "") -> ConfigError:
    return ConfigError((Problem(message=message, file=str(path), hint=hint),))


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
