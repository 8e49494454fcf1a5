"""What a sandboxed run is given, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

MIB: Final = 1_048_576

# How a run ended: by itself, or by the limit that it exceeded, or because its caller gave it up.
Ended = Literal["exited", "timeout", "memory", "processes", "output", "disk", "cancelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A folder or file of this machine that the sandbox sees at `target`, read-only unless it is `writable`."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Box:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
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
