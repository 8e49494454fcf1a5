"""A judge's sandbox: the worker's mounts as it sees them, and the one way out of it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct, structs

from aegis.core.addresses import is_public
from aegis.core.judging import JudgeSpec
from aegis.errors import WorkspaceError
from aegis.sandbox import Box, Finished, Limits, Mount, run
from aegis.sandbox.command import python_line
from aegis.sandbox.run import Cancel
from aegis.sandbox.view import read_folder

# The worker's mounts as a judge sees them: read-only, at the same paths, and the same before and after.
#
# What leads out of a mount (sockets, pipes, devices) is covered; links lead nowhere, because what they
# point at is not there.

NOTHING: Final = ""


class Workspace(Struct, frozen=True, kw_only=True):
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


# The one way out of a judge's sandbox: to the hosts of its file, and no others.
#
# The sandbox has no network. A relay inside of it leads to a Unix socket of ours, on which only `CONNECT` to a listed
# host is answered (RFC 9110, section 9.3.6). A name is resolved here and must lead to public addresses alone; the
# address
# that was checked is the one that is connected to. An address that the operator wrote out is taken as it is.

HEAD_S: Final = 10.0  # how long a request may take to arrive, and a host to be reached
MAX_HEAD: Final = 8_192  # bytes of a request
MAX_OPEN: Final = 64  # connections at a time: bounds what one run can hold
TLS_PORT: Final = 443
_INSIDE: Final = "/aegis/door"
_RELAY: Final = Path(__file__).with_name("relay.py")


def doors(judge: JudgeSpec) -> tuple[str, ...]:
    """The hosts that the programs of `judge` reach through a door; none where they have the whole network."""
    return () if "*" in judge.hosts else judge.hosts


@asynccontextmanager
async def with_door(hosts: Sequence[str], command: Sequence[str], box: Box) -> AsyncIterator[tuple[list[str], Box]]:
    """The command and the box with a door to `hosts`, each `name` (port 443) or `name:port`, as long as the block runs.

    Without hosts both are what they were.
    """
    if not hosts:
        yield list(command), box
        return
    folder = tempfile.mkdtemp(prefix="aegis-door-")
    open_now: set[asyncio.Task[None]] = set()
    server = await asyncio.start_unix_server(partial(_serve, hosts, open_now), f"{folder}/socket", limit=MAX_HEAD)
    line, mounts = python_line(_RELAY)
    outside = Mount(source=folder, target=_INSIDE)
    try:
        yield [*line, f"{_INSIDE}/socket", *command], structs.replace(box, mounts=(*box.mounts, *mounts, outside))
    finally:
        server.close()
        for task in tuple(open_now):
            task.cancel()
        await asyncio.gather(*open_now, return_exceptions=True)
        shutil.rmtree(folder)


async def _serve(
    hosts: Sequence[str],
    open_now: set[asyncio.Task[None]],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    task = asyncio.current_task()
    if task is None or len(open_now) >= MAX_OPEN:
        writer.close()
        return
    open_now.add(task)
    try:
        await _answer(hosts, reader, writer)
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        _say(writer, "502 Bad Gateway")
    finally:
        open_now.discard(task)
        writer.close()


async def _answer(hosts: Sequence[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async with asyncio.timeout(HEAD_S):
        target = _target(await reader.readuntil(b"\r\n\r\n"))
        if target is None or not _is_listed(hosts, *target):
            _say(writer, "403 Forbidden")
            return
        there, back = await _connect(*target)
    try:
        writer.write(b"HTTP/1.1 200 Connection Established\r\n\r\n")
        await asyncio.gather(_pump(reader, back), _pump(there, writer))
    finally:
        back.close()


def _target(head: bytes) -> tuple[str, int] | None:
    """Host and port of a `CONNECT`; `None` for anything else."""
    method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    host, colon, port = rest.partition(" ")[0].rpartition(":")
    if method != "CONNECT" or not colon or not port.isascii() or not port.isdigit() or len(port) > 5:
        return None
    return host.lower().rstrip("."), int(port)


def _is_listed(hosts: Sequence[str], host: str, port: int) -> bool:
    return f"{host}:{port}" in hosts or (port == TLS_PORT and host in hosts)


async def _connect(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to an address that was checked; raises `OSError`."""
    if host.replace(".", "").isdigit():  # written out by the operator
        return await asyncio.open_connection(host, port)
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(row[4][0]) for row in found]
    if not addresses or not all(is_public(one) for one in addresses):
        raise ConnectionRefusedError("a listed host leads to a private address")
    return await asyncio.open_connection(addresses[0], port)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65_536):
        sink.write(data)
        await sink.drain()
    with suppress(OSError):
        sink.write_eof()


def _say(writer: asyncio.StreamWriter, status: str) -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
