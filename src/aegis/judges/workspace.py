"""The worker's mounts as a judge sees them: read-only, at the same paths, and the same before and after.

What leads out of a mount (sockets, pipes, devices) is covered; links lead nowhere, because what they
point at is not there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from aegis.core.judging import JudgeSpec
from aegis.errors import WorkspaceError
from aegis.sandbox import Box, Finished, Limits, Mount, run
from aegis.sandbox.run import Cancel
from aegis.sandbox.view import read_folder

NOTHING: Final = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workspace:
    """The mounts of one session at one moment; `digest` covers everything that they hold."""

    mounts: tuple[str, ...]
    digest: str
    special: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Where programs start, and relative paths with them."""
        return self.mounts[0] if self.mounts else "/tmp"  # noqa: S108 - the sandbox's own

    def box(self, judge: JudgeSpec) -> Box:
        """What the programs of `judge` see."""
        mounts = [Mount(source=place, target=place) for place in self.mounts]
        programs = [Mount(source=place, target=place) for place in judge.programs]
        return Box(
            mounts=(*programs, *mounts),
            cwd=self.folder,
            path=tuple(f"{place}/bin" for place in judge.programs),
            hidden=self.special,
            network="*" in judge.hosts,
        )


def read_workspace(mounts: Sequence[str]) -> Workspace:
    """The mounts now; raises `WorkspaceError` where one is gone, unreadable or too large."""
    whole = hashlib.sha256()
    special: list[str] = []
    for place in mounts:
        if not Path(place).is_dir():
            raise WorkspaceError("a mount of the session is not a folder on this machine")
        listing = read_folder(place)
        whole.update(f"{len(place)} {place} {listing.digest}\n".encode())
        special += [f"{place}/{path}" for path in listing.special]
    digest = "sha-256:" + whole.hexdigest() if mounts else NOTHING
    return Workspace(mounts=tuple(mounts), digest=digest, special=tuple(special))


async def in_sandbox(
    command: Sequence[str], box: Box, limits: Limits, *, stdin: bytes = b"", result: bool = False
) -> Finished:
    """`run` for an event loop: a cancelled caller returns once every process of the run is gone."""
    cancel = Cancel()
    work = partial(run, command, box, limits, stdin=stdin, result=result, cancel=cancel)
    job = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        cancel()
        with suppress(Exception):
            await job
        raise
    finally:
        if job.done():
            cancel.close()
        else:
            job.add_done_callback(lambda _: cancel.close())


def limits_of(judge: JudgeSpec, seconds: float) -> Limits:
    """The bounds of one program of `judge`, which has at most `seconds`."""
    bounds = judge.limits
    return Limits(
        seconds=max(0.001, seconds),
        cpu_seconds=max(1, int(seconds) + 1),
        memory_bytes=bounds.memory_bytes,
        processes=bounds.processes,
        output_bytes=262_144,
    )
