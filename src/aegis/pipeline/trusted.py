"""Reading a configuration file, which nobody but its owner can write or replace."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from aegis.errors import ConfigError, Problem
from aegis.pipeline.document import MAX_BYTES


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
