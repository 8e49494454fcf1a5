"""A network in which there is nothing but the gateway: bubblewrap on Linux, `sandbox-exec` on macOS.

The command keeps the files, the user and the terminal that it would have had. What it loses: every network but a
loopback of its own (on macOS: every address but the gateway's), the Unix sockets of other programs that are bound when
it starts, other processes (it could steer them), and the home of Aegis.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from aegis.cli.running.hosts import Around, HostWords
from aegis.errors import InvalidCall
from aegis.sandbox.command import MISSING, program

PORT: Final = 8787  # in a network of its own every port is free
MAX_SOCKETS: Final = 4_096  # each takes words of a command line: with more of them the run is refused
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def inside(around: Around) -> Around:
    """What is around the command, as it is seen from inside."""
    return replace(around, port=PORT)


def enclosed(told: HostWords, around: Around, info: int) -> HostWords:
    """What is run in place of the command; bubblewrap tells the descriptor `info` which process is the first inside.

    Raises `InvalidCall` where this machine has no bubblewrap.
    """
    bwrap = program()
    if bwrap is None:
        raise InvalidCall(f"`--strict-network` cannot be kept: {MISSING}", code="sandbox", hint="install bubblewrap")
    line = [bwrap, "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-net", "--unshare-pid", "--unshare-ipc"]
    line += ["--as-pid-1", "--die-with-parent", "--info-fd", str(info)]
    if around.home.is_dir():
        line += ["--tmpfs", str(around.home)]
    for path in _sockets(around):
        line += ["--ro-bind", "/dev/null", path]
    # Clients that ask a proxy for other hosts hear why they cannot have them.
    refusing = {name: f"http://127.0.0.1:{PORT}" for one in _PROXIES for name in (one, one.lower())}
    first = [sys.executable, "-P", "-m", "aegis.cli.running.inside", str(PORT), around.socket]
    return replace(told, command=[*line, "--", *first, *told.command], environment=told.environment | refusing)


SEATBELT: Final = "/usr/bin/sandbox-exec"


def fenced(told: HostWords, around: Around, *, program: str = SEATBELT) -> HostWords:
    """What is run in place of the command on macOS; raises `InvalidCall` where `sandbox-exec` is not there."""
    if not os.access(program, os.X_OK):
        raise InvalidCall(f"`--strict-network` cannot be kept: there is no `{program}`", code="sandbox")
    refusing = {name: around.url for one in _PROXIES for name in (one, one.lower())}
    line = [program, "-p", seatbelt(around)]
    return replace(told, command=[*line, *told.command], environment=told.environment | refusing)


def seatbelt(around: Around) -> str:
    """The profile by which macOS lets the command reach the gateway alone; of several rules that fit the last counts.

    Beside the network it takes what would start or steer a program outside: Apple events, jobs, debugging of others.
    """
    home = json.dumps(str(around.home))
    sockets = [json.dumps(path) for path in (around.socket, around.hooks)]
    lines = ["(version 1)", "(allow default)", "(deny network*)", f"(deny file-read* file-write* (subpath {home}))"]
    lines += ["(deny appleevent-send)", "(deny job-creation)", "(deny mach-priv-task-port)", "(deny signal)"]
    lines += ["(allow signal (target same-sandbox))"]
    lines += [f'(allow network-outbound (remote ip "localhost:{around.port}"))']
    lines += [f"(allow network-outbound (remote unix-socket (path-literal {one})))" for one in sockets]
    lines += [f"(allow file-read* file-write* (literal {one}))" for one in sockets]
    return "\n".join(lines)


def first_inside(descriptor: int) -> int:
    """The process that hears signals inside, as bubblewrap tells it; raises `InvalidCall` where nothing was started."""
    with os.fdopen(descriptor) as told:
        text = told.read()
    try:
        return int(json.loads(text)["child-pid"])
    except (ValueError, KeyError) as error:
        hint = "`aegis doctor` says whether sandboxes can be made here"
        raise InvalidCall("bubblewrap could not make the network", code="sandbox", hint=hint) from error


def _sockets(around: Around) -> Iterator[str]:
    """The Unix sockets of others that lie in the file system, as the kernel lists them (proc(5), /proc/net/unix)."""
    own = {around.socket, around.hooks}
    found: set[str] = set()
    for line in Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]:
        path = line.split(maxsplit=7)[7] if line.count("/") else ""
        if path.startswith("/") and path not in own and not Path(path).is_relative_to(around.home):
            found.add(path)
    hidden = [path for path in sorted(found) if _is_socket(path)]
    if len(hidden) > MAX_SOCKETS:
        raise InvalidCall("there are too many Unix sockets on this machine to hide them", code="sandbox")
    yield from hidden


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:  # gone, or in a folder that the command cannot enter either
        return False
