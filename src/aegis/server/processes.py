"""Several processes of one gateway: a parent that holds the doors open, and starts again whoever dies.

The parent decides nothing, opens no store and runs one thread, so that a fork of it is a process like at its first
start. Child 0, the front, is a whole gateway; the others decide beside it. Whatever was answered was durable before,
and every lock is the kernel's: a child that dies at any point leaves nothing to repair. Where the parent dies its
children end within `aegis.server.serve.HURRY_S`, and the doors close with them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aegis.server.protocol import SocketTaken, bind_tcp, bind_unix, unlink_unix
from aegis.store.shared import Books

MAX_PROCESSES: Final = 64  # each one takes some 100 MB
FRONT: Final = "front.sock"  # where the front answers what others were asked
DECIDERS: Final = "deciders.sock"  # where the front says what is in force
QUICK_S: Final = 1.0  # a process that lived for less is started again with a pause, so that no crash spins
PAUSE_S: Final = 0.5
_STOPS: Final = (signal.SIGTERM, signal.SIGINT)
_HEARD: Final = (*_STOPS, signal.SIGHUP)


@dataclass(frozen=True, kw_only=True, slots=True)
class Doors:
    """What a gateway of several processes listens on; `None` where another gateway of the home has the socket."""

    tcp: socket.socket
    unix: socket.socket | None
    hooks: socket.socket | None
    front: socket.socket
    deciders: socket.socket


@dataclass(frozen=True, kw_only=True, slots=True)
class Seat:
    """The place of one child: 0 is the front. `lifeline` ends when the parent does; `is_first` says it never died."""

    number: int
    books: Books
    doors: Doors
    lifeline: int
    is_first: bool
    started: int

    def ready(self) -> None:
        """Tell the parent that the front answers: from now on it is started again when it dies."""
        os.write(self.started, b"1")


@contextlib.contextmanager
def open_doors(home: Path, host: str, port: int, *, unix: Path, hooks: Path) -> Iterator[Doors]:
    """Bind every door; raises `ConfigError` where another gateway has one of those that must be had."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(contextlib.closing(bind_tcp(host, port)))
        inner = [stack.enter_context(_bound(home / name)) for name in (FRONT, DECIDERS)]
        outer: list[socket.socket | None] = []
        for path in (unix, hooks):
            try:
                outer.append(stack.enter_context(_bound(path)))
            except SocketTaken:  # its socket belongs to the first gateway of a home
                outer.append(None)
        yield Doors(tcp=tcp, unix=outer[0], hooks=outer[1], front=inner[0], deciders=inner[1])


@contextlib.contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    listener = bind_unix(path)
    inode, owner = path.lstat().st_ino, os.getpid()
    try:
        with contextlib.closing(listener):
            yield listener
    finally:
        if os.getpid() == owner:
            unlink_unix(path, inode)


class Crew:
    """The children of one parent."""

    def __init__(self, doors: Doors, processes: int):
        self._doors = doors
        self._processes = processes
        self._running: dict[int, tuple[int, float]] = {}  # process id to place, and when it was started
        self._is_stopping = False
        self._books = Books()
        self._lifeline = os.pipe()
        self._started = os.pipe()
        os.set_blocking(self._started[0], False)
        self._has_started = False

    def run(self) -> Seat | int:
        """Start every child and start again who dies, until a signal ends it.

        Returns in each child its place, and in the parent, once all have ended, the exit code of the gateway.
        """
        for one in _HEARD:
            signal.signal(one, self._hear)
        for number in range(self._processes):
            place = self._start(number, is_first=True)
            if place is not None:
                return place
        code = 0
        while self._running:
            pid, status = os.waitpid(-1, 0)
            number, since = self._running.pop(pid, (-1, 0.0))
            if number < 0 or self._is_stopping:
                continue
            ended = os.waitstatus_to_exitcode(status)
            if number == 0 and not self._ever_started():  # it said why: what is wrong now is wrong the next time
                code = max(ended, 1)
                self._hear(signal.SIGTERM)
                continue
            self._say(f"process {number} ended with {ended} and is started again")
            if time.monotonic() - since < QUICK_S:
                time.sleep(PAUSE_S)
            if self._is_stopping:
                continue
            place = self._start(number, is_first=False)
            if place is not None:
                return place
        return code

    def _start(self, number: int, *, is_first: bool) -> Seat | None:
        """Fork a child: its place in it, `None` in the parent. No signal comes between the fork and its entry here."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            pid = os.fork()
            if pid:
                self._running[pid] = (number, time.monotonic())
                return None
            os.setpgid(0, 0)  # Ctrl-C is the parent's, who tells everybody once
            for one in _HEARD:
                signal.signal(one, signal.SIG_DFL)
            os.close(self._lifeline[1])
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
        return Seat(
            number=number,
            books=self._books,
            doors=self._doors,
            lifeline=self._lifeline[0],
            is_first=is_first,
            started=self._started[1],
        )

    def _hear(self, number: int, _frame: object = None) -> None:
        """Pass a signal on: a stop to everybody, a reload to the front, which tells the others."""
        self._is_stopping = self._is_stopping or number in _STOPS
        for pid, (place, _) in list(self._running.items()):
            if number in _STOPS or place == 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if number in _STOPS else number)

    def _ever_started(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._has_started = self._has_started or bool(os.read(self._started[0], 1))
        return self._has_started

    @staticmethod
    def _say(text: str) -> None:
        with contextlib.suppress(OSError):
            os.write(2, f'{{"level": "warning", "logger": "aegis.server", "message": "{text}"}}\n'.encode())
