"""One run: start it, feed it, watch it, end it. Nothing of it is left when this returns."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from msgspec import structs

from aegis.errors import SandboxUnavailable
from aegis.sandbox.command import Box, Ended, Finished, Limits, command_line, program, unavailable

# The result descriptor: what one process says, told apart from what its children say by the kernel's word.
#
# The descriptor is one end of a socket pair. The kernel attaches the sender's process id to every message
# (`SCM_CREDENTIALS`, unix(7)), so a child that got hold of the descriptor cannot speak for its parent: what it
# writes is not taken, and is reported.

MAX_MESSAGE: Final = 1_048_576  # bytes of one result: bounds what a program can make us hold
_CREDENTIALS: Final = struct.Struct("3i")
_CHANNEL_CHUNK: Final = 65_536


class Channel:
    """Our end, and the end that a program inherits; `speaker` is the process that may write, set once it is known."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.ours.setblocking(False)
        self.message = bytearray()
        self.forged = False
        self.speaker = 0

    def handed_over(self) -> None:
        """Close our copy of the program's end, so that its end is seen."""
        self.theirs.close()

    def read(self) -> bool:
        """Take what is there; false once nothing more can come."""
        try:
            data, extra, _, _ = self.ours.recvmsg(_CHANNEL_CHUNK, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        sender = 0
        for level, kind, value in extra:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                sender = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])[0]
        if sender != self.speaker or sender == 0:
            self.forged = True
        elif len(self.message) <= MAX_MESSAGE:
            self.message += data
        return True

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


# What a tree of processes uses, as `/proc` shows it at one moment.

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MAX_SEEN: Final = 4_096  # processes counted at one look: a fork bomb must not keep the watcher busy
_ENTRY: Final = 1_024  # bytes that the kernel keeps for a name and its inode: a million empty files are not nothing


def usage(root: int) -> tuple[int, int]:
    """How many processes descend from `root`, itself included, and how many bytes of memory are theirs alone."""
    count, memory = 0, 0
    waiting = [root]
    while waiting and count < MAX_SEEN:
        process = Path("/proc", str(waiting.pop()))
        with suppress(OSError, ValueError, IndexError):  # a process that ended meanwhile uses nothing
            fields = (process / "statm").read_text().split()
            memory += (int(fields[1]) - int(fields[2])) * _PAGE
            count += 1
            for task in (process / "task").iterdir():
                waiting.extend(int(child) for child in (task / "children").read_text().split())
    return count, memory


def size_of(folder: str, bound: int) -> int:
    """How many bytes the files below `folder` take, names included; counting stops beyond `bound`.

    A folder that is there and cannot be looked into, by its mode or the length of its path, is beyond every bound.
    """
    total = 0
    waiting = [folder]
    while waiting and total <= bound:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    total += _ENTRY
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        with suppress(FileNotFoundError):
                            total += entry.stat(follow_symlinks=False).st_blocks * 512
        except (FileNotFoundError, NotADirectoryError):
            continue  # it is gone
        except OSError:
            return bound + 1
    return total


RESULT_FD: Final = "AEGIS_RESULT_FD"
_LOOK_S: Final = 0.1  # how often the tree is looked at
_EARLY_S: Final = 1.0  # so long it is looked at four times as often: what multiplies does so at once
_FLOOD: Final = 64  # times the kept output after which a tree that goes on writing is ended
_CHUNK: Final = 65_536
_END_S: Final = 10.0  # how long the kernel may take to end the processes of a run
_START_S: Final = 5.0  # how long bubblewrap may take to say which process it started


class Cancel:
    """Gives a run up from another thread, at once."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._lock = threading.Lock()
        self.asked = False

    def fileno(self) -> int:
        return self._read

    def __call__(self) -> None:
        with self._lock:
            if not self.asked and self._write >= 0:
                self.asked = True
                os.write(self._write, b"x")

    def close(self) -> None:
        with self._lock:
            if self._write >= 0:
                os.close(self._write)
                os.close(self._read)
                self._write = self._read = -1


def run(
    command: Sequence[str],
    box: Box,
    limits: Limits,
    *,
    stdin: bytes = b"",
    result: bool = False,
    cancel: Cancel | None = None,
) -> Finished:
    """Run `command` in `box` and return what it came to, with every process of it gone.

    With `result` the program finds the number of its result descriptor in `AEGIS_RESULT_FD`, and what it
    alone wrote there is `message`. Blocks the calling thread; `cancel` ends it early. Raises
    `SandboxUnavailable` where no sandbox can be made.
    """
    why = unavailable()
    bwrap = program()
    if why is not None or bwrap is None:
        raise SandboxUnavailable(why or "bubblewrap is gone")
    with ExitStack() as stack:
        channel = Channel() if result else None
        if channel is not None:
            stack.callback(channel.close)
            number = channel.theirs.fileno()
            box = _telling(box, number)
        return _Run(bwrap, box, limits, command, stdin, channel, cancel).finish()


def _telling(box: Box, number: int) -> Box:
    environment = {**box.environment, RESULT_FD: str(number)}
    return structs.replace(box, environment=environment)


class _Run:
    def __init__(
        self,
        bwrap: str,
        box: Box,
        limits: Limits,
        command: Sequence[str],
        stdin: bytes,
        channel: Channel | None,
        cancel: Cancel | None,
    ):
        self._limits = limits
        self._channel = channel
        self._cancel = cancel
        self._writable = [mount.source for mount in box.mounts if mount.writable]
        self._stdin = memoryview(stdin)
        self._kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._seen = 0
        self._cut = False
        self._began = time.monotonic()
        info, told = os.pipe()
        line = command_line(bwrap, box, limits, command, first=channel is not None)
        line[1:1] = ["--info-fd", str(told)]
        inherited = (told,) if channel is None else (told, channel.theirs.fileno())
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the sandbox is the point
                line,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=inherited,
                env={},
                cwd="/",
            )
        except OSError as error:
            os.close(info)
            raise SandboxUnavailable(f"bubblewrap cannot be run: `{type(error).__name__}`") from error
        finally:
            os.close(told)
            if channel is not None:
                channel.handed_over()
        try:
            inside = _started(info)
        finally:
            os.close(info)
        self._inside = _handle(inside)
        if channel is not None:
            channel.speaker = inside

    def finish(self) -> Finished:
        """Serve the run until it ends; whatever happens, its processes are gone afterwards."""
        try:
            ended = self._serve()
        finally:
            self._kill()
        code = self._process.returncode
        return Finished(
            ended=ended,
            code=None if ended != "exited" else code if code >= 0 else 128 - code,
            stdout=bytes(self._kept["stdout"]),
            stderr=bytes(self._kept["stderr"]),
            cut=self._cut,
            seconds=time.monotonic() - self._began,
            message=b"" if self._channel is None else bytes(self._channel.message),
            forged=self._channel is not None and self._channel.forged,
        )

    def _serve(self) -> Ended:
        process, deadline = self._process, self._began + self._limits.seconds
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise SandboxUnavailable("the run has no pipes")
        with selectors.DefaultSelector() as selector:
            for name, stream in (("stdout", process.stdout), ("stderr", process.stderr)):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ, name)
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
            if self._channel is not None:
                selector.register(self._channel.ours, selectors.EVENT_READ, "channel")
            if self._cancel is not None:
                selector.register(self._cancel, selectors.EVENT_READ, "cancel")
            look = self._began + _LOOK_S / 4
            while True:
                now = time.monotonic()
                if now >= deadline:
                    return "timeout"
                if now >= look:
                    exceeded = self._exceeded()
                    if exceeded is not None:
                        return exceeded
                    early = now < self._began + _EARLY_S
                    look = time.monotonic() + (_LOOK_S / 4 if early else _LOOK_S)
                for key, _ in selector.select(min(look, deadline) - now):
                    if key.data == "cancel":
                        return "cancelled"
                    if not self._serve_one(key):
                        selector.unregister(key.fileobj)
                open_streams = {key.data for key in selector.get_map().values()} & {"stdout", "stderr", "channel"}
                if self._seen > _FLOOD * self._limits.output_bytes:
                    return "output"
                if not open_streams or process.poll() is not None:
                    return self._last_words(selector, deadline)

    def _last_words(self, selector: selectors.BaseSelector, deadline: float) -> Ended:
        """The program is done: read what still stands in the pipes, which no process holds any more."""
        while self._process.poll() is None:
            if time.monotonic() >= deadline:
                return "timeout"
            if self._cancel is not None and self._cancel.asked:
                return "cancelled"
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(min(_LOOK_S, max(0.001, deadline - time.monotonic())))
            exceeded = self._exceeded()
            if exceeded is not None:
                return exceeded
        for key in list(selector.get_map().values()):
            while key.data in ("stdout", "stderr", "channel") and _is_ready(key.fd) and self._serve_one(key):
                pass
        return "exited"

    def _serve_one(self, key: selectors.SelectorKey) -> bool:
        """Move what one stream has or takes; false once it is done with."""
        if key.data == "channel":
            return self._channel is not None and self._channel.read()
        try:
            if key.data == "stdin":
                self._stdin = self._stdin[os.write(key.fd, self._stdin[:_CHUNK]) :] if self._stdin else self._stdin
                if not self._stdin and self._process.stdin is not None:
                    self._process.stdin.close()
                    return False
                return True
            data = os.read(key.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:  # the program closed its end
            return False
        kept = self._kept[key.data]
        room = self._limits.output_bytes - len(kept)
        kept += data[:room] if room > 0 else b""
        self._cut = self._cut or len(data) > room
        self._seen += len(data)
        return bool(data)

    def _exceeded(self) -> Ended | None:
        count, memory = usage(self._process.pid)
        if count > self._limits.processes:
            return "processes"
        if memory > self._limits.memory_bytes:
            return "memory"
        bound = self._limits.disk_bytes
        return "disk" if any(size_of(folder, bound) > bound for folder in self._writable) else None

    def _kill(self) -> None:
        """End the first process of the sandbox's namespace: the kernel ends every other one with it.

        Bubblewrap tells how the program ended before that has happened, so it is waited for here. Raises
        `SandboxUnavailable` where a process stays all the same.
        """
        try:
            if self._inside is not None:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._inside, signal.SIGKILL)
            if self._process.poll() is None:
                self._process.kill()  # `--die-with-parent` ends what it started where that process is not known
            self._process.wait()
            if self._inside is not None and not _is_ready(self._inside, _END_S):
                raise SandboxUnavailable("a process of the run cannot be ended")
        finally:
            if self._inside is not None:
                os.close(self._inside)
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


def _is_ready(descriptor: int, seconds: float = 0) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(seconds))


def _handle(process: int) -> int | None:
    """What names this process for good and becomes readable when it is gone (pidfd_open(2)); `None` without one.

    The first process of a namespace is gone once every other one of it is (pid_namespaces(7)).
    """
    if process <= 0:
        return None
    try:
        return os.pidfd_open(process)
    except OSError:  # it is gone already, or bubblewrap's own death has to be enough
        return None


def _started(info: int) -> int:
    """The first process inside, as bubblewrap names it once it is made; 0 where it never was."""
    told = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(info, selectors.EVENT_READ)
        until = time.monotonic() + _START_S
        while selector.select(max(0.0, until - time.monotonic())):
            data = os.read(info, _CHUNK)
            told += data
            if not data or told.rstrip().endswith(b"}"):
                break
    try:
        return int(json.loads(told)["child-pid"])
    except (ValueError, KeyError, TypeError):
        return 0
