"""The two doors of a gateway: TCP on an address that was chosen with care, and a Unix socket of its owner's."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from aegis.errors import ConfigError, Problem

BACKLOG: Final = 1_024
MAX_PATH_BYTES: Final = 104  # the shortest `sun_path` among the supported systems


def bind_tcp(host: str, port: int) -> socket.socket:
    """A listening socket; raises `ConfigError` where the address is taken or not this machine's."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise _problem(f"`{host}` is not an address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise _problem(
                f"port {port} is taken", hint="is a gateway already running? choose another `--port`"
            ) from error
        raise _problem(f"cannot listen on `{host}`, port {port}: {error.strerror}") from error
    return listener


class SocketTaken(ConfigError):
    """Another gateway of the same home listens on its socket."""


def bind_unix(path: Path) -> socket.socket:
    """A listening Unix socket with mode 0600; a socket file that nobody listens on any more is replaced.

    Raises `SocketTaken` where another gateway listens there, and `ConfigError` where `path` is something else.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise _problem(f"the path of the Unix socket is over {MAX_PATH_BYTES} bytes", hint="choose a shorter `--home`")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _only_owner():
            listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _problem(f"cannot listen on the Unix socket: {error.strerror}", file=path) from error
    return listener


def unlink_unix(path: Path, inode: int) -> None:
    """Remove the socket file, if it still is the one that was bound."""
    with contextlib.suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _problem("something that is no socket is in the way of the Unix socket", file=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise _problem(f"the Unix socket cannot be asked: {error.strerror}", file=path) from error
    raise SocketTaken((Problem(message="another gateway listens on the Unix socket", file=str(path)),))


@contextlib.contextmanager
def _only_owner() -> Iterator[None]:
    """Between `bind` and `chmod` nobody else may connect either."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)


def _problem(message: str, *, file: Path | None = None, hint: str = "") -> ConfigError:
    return ConfigError((Problem(message=message, file="" if file is None else str(file), hint=hint),))
