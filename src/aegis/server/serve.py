"""Running a gateway: on TCP and on a Unix socket at once, until it is told to stop.

SIGTERM and SIGINT drain: nothing new is accepted, what is under way is answered, and what was
acknowledged is in the log. The process is gone within `drain_seconds` whatever it still waits for, and
soon after a second signal: all that was acknowledged is durable by then. SIGHUP reads the configuration again.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_network
from pathlib import Path
from typing import Final, cast

import uvicorn
import uvloop

from aegis.core.addresses import is_loopback
from aegis.errors import ConfigError, Problem
from aegis.server.app import App
from aegis.server.deciders import MAX_LINE
from aegis.server.processes import Seat
from aegis.server.protocol import (
    BACKLOG,
    KEEP_ALIVE_S,
    ConnectionLimits,
    Network,
    SocketTaken,
    bind_tcp,
    bind_unix,
    limited,
    unlink_unix,
)

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8787
SOCKET_NAME: Final = "aegis.sock"
DRAIN_S: Final = 10
SWITCH_S: Final = 0.001  # how long a thread (an export, a search) keeps the interpreter from the event loop
CLOSING_SHARE: Final = 0.3  # of the time to drain: for what is closed after the last answer
TICK_S: Final = 1.0
HURRY_S: Final = 1.0  # how long a process may take to be gone after a second signal
GC_THRESHOLDS: Final = (20_000, 20, 20)  # a call makes hundreds of objects and next to no cycles

_log = logging.getLogger("aegis.server")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeSettings:
    """Where and how a gateway listens.

    `unix` is the path of the Unix socket, `hooks` that of the one for coding agents' hooks, or `None` for none; port 0
    takes any free one.
    `trusted_proxies` are networks that alone may connect over TCP, and that speak TLS to everybody else.
    """

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    unix: Path | None = None
    hooks: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    trusted_proxies: tuple[str, ...] = ()
    insecure_plain_http: bool = False
    drain_seconds: int = DRAIN_S
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)


def serve(
    app: App,
    settings: ServeSettings,
    *,
    ready: Callable[[GatewayServer], None] | None = None,
    place: Seat | None = None,
) -> None:
    """Serve `app` until a signal or `GatewayServer.stop` ends it; `ready` hears of the server once both doors are open.

    In one of several processes `place` has the doors, which are not its own to close.
    Raises `ConfigError` before anything is served where the settings cannot be kept.
    """
    tls = tls_context(settings)
    peers = check_exposure(settings)
    with contextlib.ExitStack() as stack:
        if place is not None:
            tcp, unix, hooks = place.doors.tcp, place.doors.unix, place.doors.hooks if place.number == 0 else None
            settings = dataclasses.replace(settings, unix=None, hooks=None)
        else:
            tcp = stack.enter_context(contextlib.closing(bind_tcp(settings.host, settings.port)))
            unix = stack.enter_context(_unix(settings.unix))
            hooks = stack.enter_context(_unix(settings.hooks))
        settle_memory()
        sys.setswitchinterval(SWITCH_S)
        server = GatewayServer(
            app, settings, tcp=tcp, unix=unix, hooks=hooks, tls=tls, peers=peers, ready=ready, place=place
        )
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve())


def settle_memory() -> None:
    """Spare what start-up made, which is there to stay, from every later search for garbage."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()  # whoever loads much may have put it off until now


def check_exposure(settings: ServeSettings) -> tuple[Network, ...]:
    """Return the networks that may connect; raises `ConfigError` where keys would cross a network in the clear."""
    try:
        peers = tuple(ip_network(text) for text in settings.trusted_proxies)
    except ValueError as error:
        raise _problem(f"a trusted proxy is not an address or network: {error}") from error
    if is_loopback(settings.host) or settings.tls_certificate is not None or peers or settings.insecure_plain_http:
        return peers
    raise _problem(
        f"`{settings.host}` can be reached from elsewhere, and keys would cross the network unencrypted",
        hint="give a TLS certificate and key, name a trusted proxy, or set `insecure_plain_http`",
    )


def tls_context(settings: ServeSettings) -> ssl.SSLContext | None:
    """Return the TLS side of the TCP listener (TLS 1.2 and later), or `None` without a certificate."""
    if settings.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_certificate, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise _problem("the TLS certificate and key cannot be used together") from error
    return context


class _Ending:
    """The time that is left to a process which was told to stop; after it the process ends as it stands."""

    def __init__(self, sockets: Sequence[Path]):
        self._sockets = [(path, path.lstat().st_ino) for path in sockets]
        self._until = float("inf")

    def within(self, seconds: float) -> None:
        """End in `seconds` at the latest."""
        first, self._until = self._until == float("inf"), min(self._until, time.monotonic() + seconds)
        if first:
            _thread.start_new_thread(self._watch, ())

    def _watch(self) -> None:
        while (left := self._until - time.monotonic()) > 0:
            time.sleep(min(left, 0.05))
        _log.warning("the gateway ends with work under way", extra={"pid": os.getpid()})
        for path, inode in self._sockets:
            unlink_unix(path, inode)
        logging.shutdown()
        os._exit(0)


class GatewayServer(uvicorn.Server):
    """A uvicorn server with two listeners, a drain that wakes whoever waits, and an exit code of zero."""

    def __init__(
        self,
        app: App,
        settings: ServeSettings,
        *,
        tcp: socket.socket,
        unix: socket.socket | None,
        hooks: socket.socket | None,
        tls: ssl.SSLContext | None,
        peers: tuple[Network, ...],
        ready: Callable[[GatewayServer], None] | None,
        place: Seat | None,
    ):
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="on",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=max(1, int(settings.drain_seconds * (1 - CLOSING_SHARE))),
            )
        )
        self._app = app
        self._settings = settings
        self._tcp = tcp
        self._port: int = tcp.getsockname()[1]
        self._unix = unix
        self._hooks = hooks
        self._tls = tls
        self._peers = peers
        self._ready = ready
        self._place = place
        self._wake: Callable[[], object] = lambda: None

    @property
    def port(self) -> int:
        """The TCP port that this server listens on."""
        return self._port

    def stop(self) -> None:
        """Drain and end, as SIGTERM does; safe from any thread."""
        self.should_exit = True
        self._wake()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            raise _problem("the gateway could not start", hint="the lines above say why")
        loop = asyncio.get_running_loop()
        limits = self._settings.limits
        outside = ConnectionLimits(
            connections=limits.connections,
            header_bytes=limits.header_bytes,
            arrival_seconds=limits.arrival_seconds,
            peers=self._peers,
        )
        self.servers = [
            await loop.create_server(self._protocols(outside), sock=self._tcp, ssl=self._tls, backlog=BACKLOG)
        ]
        if self._unix is not None:
            self.servers.append(
                await loop.create_unix_server(self._protocols(limits), sock=self._unix, backlog=BACKLOG)
            )
        if self._hooks is not None:
            self.servers.append(await asyncio.start_unix_server(self._app.hooks.connected, sock=self._hooks))
        if self._place is not None and self._app.services.deciders is not None:
            doors, deciders = self._place.doors, self._app.services.deciders
            inner = self._protocols(dataclasses.replace(limits, inner=True))
            self.servers.append(await loop.create_unix_server(inner, sock=doors.front, backlog=BACKLOG))
            self.servers.append(
                await asyncio.start_unix_server(deciders.connected, sock=doors.deciders, limit=MAX_LINE)
            )
        self.started = True
        _log.info("the gateway listens", extra={"host": self._settings.host, "port": self.port, "pid": os.getpid()})
        if self._ready is not None:
            self._ready(self)

    async def main_loop(self) -> None:
        """Renew the date of answers every second, until somebody stops it; uvicorn looks ten times a second."""
        stopping = asyncio.Event()
        self._wake = partial(asyncio.get_running_loop().call_soon_threadsafe, stopping.set)
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), TICK_S)
        self._wake = lambda: None  # the loop may be closed when a second signal comes

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.services.draining.set()
        self._app.services.waiting.wake_all()
        await self._app.hooks.aclose()
        await super().shutdown(sockets)
        for connection in list(self.server_state.connections):  # those that outlived the time to drain
            connection.transport.abort()
        _log.info("the gateway stopped", extra={"pid": os.getpid()})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        self._ending = _Ending([path for path in (self._settings.unix, self._settings.hooks) if path and path.exists()])
        stops: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT)
        for number in stops:
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._app.reloads.soon)
        if self._place is not None:
            loop.add_reader(self._place.lifeline, self._orphaned)
        try:
            yield
        finally:
            if self._place is not None:
                loop.remove_reader(self._place.lifeline)
            for number in (*stops, signal.SIGHUP):
                loop.remove_signal_handler(number)
            for number in stops:  # what is closed after the loop is hurried as well
                signal.signal(number, lambda *_: self._stop())

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        self._ending.within(HURRY_S if self.should_exit else self._settings.drain_seconds)
        self.stop()

    def _orphaned(self) -> None:
        """End now: nobody starts a process again whose parent is gone, and the doors are wanted by the next one."""
        asyncio.get_running_loop().remove_reader(cast("Seat", self._place).lifeline)
        self.should_exit = True
        self._stop()

    def _protocols(self, limits: ConnectionLimits) -> Callable[[], asyncio.Protocol]:
        return partial(limited(limits), self.config, self.server_state, self.lifespan.state)


@contextlib.contextmanager
def _unix(path: Path | None) -> Iterator[socket.socket | None]:
    if path is None:
        yield None
        return
    try:
        listener = bind_unix(path)
    except SocketTaken:  # several gateways can share a home; its socket belongs to the first
        _log.warning("another gateway of this home has its Unix socket, so this one listens on TCP alone")
        yield None
        return
    inode = path.lstat().st_ino
    try:
        with contextlib.closing(listener):
            yield listener
    finally:
        unlink_unix(path, inode)


def _problem(message: str, *, hint: str = "") -> ConfigError:
    return ConfigError((Problem(message=message, hint=hint),))
