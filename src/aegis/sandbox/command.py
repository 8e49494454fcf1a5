"""The command line of bubblewrap for one box; everything that is not named here does not exist inside.

No network unless the box has it, no home, no environment, only harmless devices, no capability, no further user
namespaces; the file system is read-only but for the sandbox's own `/tmp` and the writable mounts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field

# What a sandboxed run is given, and what it comes to.

MIB: Final = 1_048_576

# How a run ended: by itself, or by the limit that it exceeded, or because its caller gave it up.
Ended = Literal["exited", "timeout", "memory", "processes", "output", "disk", "cancelled"]


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of one run; each is for the whole tree of processes unless it says otherwise.

    `cpu_seconds` and `file_bytes` are per process and per file, `memory_bytes` counts for each process
    at once and for the tree as it is looked at ten times a second and more. Of each output stream `output_bytes`
    are kept; a tree that writes far more is ended. `disk_bytes` bounds each writable mount.
    """

    seconds: float = 10.0
    cpu_seconds: int = 10
    memory_bytes: int = 512 * MIB
    output_bytes: int = 256 * 1024
    processes: int = 64
    file_bytes: int = 64 * MIB
    disk_bytes: int = 256 * MIB


class Mount(Struct, frozen=True, kw_only=True):
    """A folder or file of this machine that the sandbox sees at `target`, read-only unless it is `writable`."""

    source: str
    target: str
    writable: bool = False


class Box(Struct, frozen=True, kw_only=True):
    """What the sandbox sees beside the system's programs and libraries.

    `hidden` are files inside of the mounts that are covered: sockets, pipes and devices lead out. `path`
    are folders with programs, searched before the system's. `network` leaves this machine's network on.
    """

    mounts: tuple[Mount, ...] = ()
    cwd: str = "/tmp"  # noqa: S108 - the sandbox's own, empty
    environment: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False


class Finished(Struct, frozen=True, kw_only=True):
    """What a run came to. `code` is the exit status (128 + the signal where a signal ended it), `None` where we did.

    `cut` says that output beyond its bound was dropped. `message` is what the program itself wrote to its
    result descriptor; `forged` says that another process of the sandbox wrote there.
    """

    ended: Ended
    code: int | None
    stdout: bytes
    stderr: bytes
    cut: bool
    seconds: float
    message: bytes = b""
    forged: bool = False


NOBODY: Final = "65534"
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
# What programs need to find libraries, zones and certificates; no file of accounts, hosts or keys.
_ETC: Final = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl/certs", "mime.types")
_NETWORK: Final = ("resolv.conf", "hosts", "nsswitch.conf")
_ROOTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
OPEN_FILES: Final = 256


def program() -> str | None:
    """Where bubblewrap is, or `None`; the search path is the system's, never the caller's."""
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin")


def command_line(bwrap: str, box: Box, limits: Limits, command: Sequence[str], *, first: bool) -> list[str]:
    """The arguments that run `command` in `box`; with `first` it is the first process of its own namespace."""
    line = [bwrap, "--unshare-all", "--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
    line += ["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--disable-userns"]
    line += ["--hostname", "sandbox", "--clearenv"]
    if box.network:
        line.append("--share-net")
    if first:
        line.append("--as-pid-1")
    line += _system()
    for name in _NETWORK if box.network else ():
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    line += ["--proc", "/proc", "--dev", "/dev"]
    for folder in ("/dev/shm", "/tmp"):  # noqa: S108 - inside
        line += ["--size", str(limits.disk_bytes), "--perms", "1777", "--tmpfs", folder]
    for mount in sorted(box.mounts, key=lambda one: one.target):  # a folder before what lies inside of it
        line += ["--bind" if mount.writable else "--ro-bind", mount.source, mount.target]
    for hidden in box.hidden:
        line += ["--ro-bind", "/dev/null", hidden]
    line += ["--remount-ro", "/dev", "--remount-ro", "/"]
    path = ":".join((*box.path, SYSTEM_PATH))
    environment = {"PATH": path, "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8", **box.environment}  # noqa: S108
    for name, value in environment.items():
        line += ["--setenv", name, value]
    line += ["--chdir", box.cwd, "--", "/bin/sh", "-c", _limited(limits), "sh", *command]
    return line


def _system() -> Iterator[str]:
    """The system's programs and libraries, as this machine lays them out."""
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _ROOTS:
        root = Path("/", name)
        if root.is_symlink():
            yield from ("--symlink", str(root.readlink()), str(root))
        elif root.is_dir():
            yield from ("--ro-bind", str(root), str(root))
    for name in _ETC:
        file = Path("/etc", name)
        if file.exists():
            yield from ("--ro-bind", str(file), str(file))


def _limited(limits: Limits) -> str:
    """A line of shell that takes on the limits of one process and becomes the command."""
    kib = limits.memory_bytes // 1024
    bounds = (
        f"-t {limits.cpu_seconds}",  # processor time
        f"-d {kib}",  # writable private memory: address space alone would refuse runtimes that only reserve it
        f"-f {max(1, limits.file_bytes // 512)}",  # blocks of 512 bytes in POSIX shells
        f"-n {OPEN_FILES}",
        "-c 0",  # no core dump of what the program read
    )
    # Processes: `-u` in bash and ksh, `-p` in dash and ash. The kernel exempts root; its are counted by the watcher.
    processes = f"{{ ulimit -u {limits.processes} 2>/dev/null || ulimit -p {limits.processes}; }}"
    return " && ".join([*(f"ulimit {bound}" for bound in bounds), processes]) + ' && exec "$@"'


# Whether this machine can make sandboxes, and why not.

MISSING: Final = "bubblewrap (`bwrap`) is not installed on this machine"
_ASK_AGAIN_S: Final = 60.0  # how long a refusal is believed: an operator may mend it
_PROBE_S: Final = 10.0

_lock = threading.Lock()
_known: dict[str, tuple[str | None, float]] = {}


def unavailable() -> str | None:
    """Why no sandbox can be made here, in one sentence; `None` where one can. Tried once, refusals again."""
    bwrap = program()
    if bwrap is None:
        return MISSING
    with _lock:
        why, until = _known.get(bwrap, (None, 0.0))
        if time.monotonic() < until:
            return why
        why = _probe(bwrap)
        _known[bwrap] = (why, time.monotonic() + (_ASK_AGAIN_S if why else float("inf")))
        return why


def _probe(bwrap: str) -> str | None:
    try:
        tried = subprocess.run(  # noqa: S603 - a fixed program
            command_line(bwrap, Box(), Limits(), ["true"], first=False),
            capture_output=True,
            timeout=_PROBE_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be run on this machine: `{type(error).__name__}`"
    if tried.returncode == 0:
        return None
    words = tried.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"bubblewrap cannot make a sandbox on this machine: `{words[-1][:200] if words else tried.returncode}`"


# Our own interpreter inside a sandbox: for small programs of ours that read what nobody trusts.


def python_line(script: Path) -> tuple[list[str], tuple[Mount, ...]]:
    """The command line that runs `script` with this interpreter's standard library alone, and the mounts it needs."""
    base = os.path.realpath(sys.base_prefix)
    inside = "/aegis/" + script.name
    mounts = [Mount(source=str(script), target=inside)]
    if not base.startswith("/usr/"):
        mounts.append(Mount(source=base, target=base))
    interpreter = os.path.realpath(sys.executable)
    return [interpreter, "-I", "-S", "-B", inside], tuple(mounts)
