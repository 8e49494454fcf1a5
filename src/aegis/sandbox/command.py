"""The command line of bubblewrap for one box; everything that is not named here does not exist inside.

No network unless the box has it, no home, no environment, only harmless devices, no capability, no further user
namespaces; the file system is read-only but for the sandbox's own `/tmp` and the writable mounts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from aegis.sandbox.values import Box, Limits

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
