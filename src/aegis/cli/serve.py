"""`aegis serve`: the gateway, in the foreground, until a signal ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aegis.cli.options import DEFAULT_PORT, AcceptRollback, ConfigFile, Home, home_of
from aegis.cli.output import print_line
from aegis.errors import ConfigError, Problem

if TYPE_CHECKING:
    from aegis.server.processes import Seat
    from aegis.server.serve import GatewayServer, ServeSettings

Certificate = Annotated[
    Path | None, typer.Option("--tls-certificate", metavar="FILE", help="serve TLS with this chain")
]
CertificateKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="the certificate's key")]


def serve(
    config: ConfigFile = None,
    home: Home = None,
    host: Annotated[str, typer.Option("--host", help="the address to listen on")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", envvar="AEGIS_PORT", min=0, max=65_535, help="the TCP port; 0 takes a free one")
    ] = DEFAULT_PORT,
    tls_certificate: Certificate = None,
    tls_key: CertificateKey = None,
    trusted_proxies: Annotated[
        list[str] | None,
        typer.Option("--trusted-proxy", metavar="NETWORK", help="only these may connect, and they speak TLS to others"),
    ] = None,
    insecure_plain_http: Annotated[
        bool, typer.Option("--insecure-plain-http", help="listen elsewhere than loopback without TLS")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, help="processes that decide, on one port and one log")
    ] = 1,
    accept_rollback: AcceptRollback = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error")] = "info",
) -> None:
    """Run the gateway: HTTP API on TCP and on the socket in the home.

    SIGTERM and Ctrl-C drain and exit 0; SIGHUP reads the configuration again, and so does a change
    of the file. It is up when `/readyz` answers 200. With `--workers` a process that dies is started again.
    """
    from aegis.bootstrap.state import home_dir
    from aegis.proxies.hooks.door import SOCKET as HOOK_SOCKET
    from aegis.server.processes import Crew, Seat, open_doors
    from aegis.server.serve import SOCKET_NAME, ServeSettings, check_exposure, tls_context
    from aegis.server.telemetry import configure_logs

    place = home_dir(home_of(home))
    settings = ServeSettings(
        host=host,
        port=port,
        unix=place / SOCKET_NAME,
        hooks=place / HOOK_SOCKET,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        trusted_proxies=tuple(trusted_proxies or ()),
        insecure_plain_http=insecure_plain_http,
    )
    if workers == 1:
        configure_logs(log_level)
        _serve(config, place, settings, accept_rollback)
        return
    tls_context(settings)
    check_exposure(settings)
    with open_doors(place, host, port, unix=place / SOCKET_NAME, hooks=place / HOOK_SOCKET) as doors:
        ran = Crew(doors, workers).run()
        if isinstance(ran, Seat):
            configure_logs(log_level)
            if ran.number:
                _decide(config, place, settings, ran)
            else:
                _serve(config, place, settings, accept_rollback if ran.is_first else None, ran)
            return
    if ran:
        raise typer.Exit(ran)


def _serve(
    config: Path | None, home: Path, settings: ServeSettings, accept_rollback: str | None, place: Seat | None = None
) -> None:
    """Run a whole gateway, alone or as the front of several processes."""
    from aegis.bootstrap import open_deployment
    from aegis.bootstrap.credentials import first_link
    from aegis.server.app import create_app
    from aegis.server.serve import serve as run
    from aegis.store import MemoryStore

    books = None if place is None else place.books
    deployment = open_deployment(config, home, accept_rollback=accept_rollback, books=books)
    try:
        if place is not None and isinstance(deployment.store, MemoryStore):
            hint = "name a file or a database in `store`, or leave `--workers` out"
            raise ConfigError((Problem(message="several processes cannot share a store in memory", hint=hint),))
        scheme = "http" if settings.tls_certificate is None else "https"
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host

        def ready(server: GatewayServer) -> None:
            app.services.workers.start()
            if place is not None:
                place.ready()
                if not place.is_first:
                    return
            print_line(f"aegis: ready at {scheme}://{shown}:{server.port} and {settings.unix}")
            named = deployment.config_path or "built in"
            print_line(f"aegis: profile {deployment.config.settings.profile}, configuration {named}, home {home}")
            token = first_link(deployment.store)
            if token is not None:
                print_line(
                    f"aegis: the first account is made at {scheme}://{shown}:{server.port}/welcome?token={token}"
                )
            sys.stdout.flush()

        app = create_app(deployment, is_front=place is not None)
        app.models.providers()  # a key that cannot be had is an error now, not at the first request
        app.mcp.upstreams()
        run(app, settings, ready=ready, place=place)
    finally:
        deployment.close()


def _decide(config: Path | None, home: Path, settings: ServeSettings, place: Seat) -> None:
    """Decide beside the front, under what it has in force."""
    from aegis.bootstrap import open_deployment
    from aegis.server.app import create_decider
    from aegis.server.deciders import FrontLine
    from aegis.server.processes import DECIDERS, FRONT
    from aegis.server.serve import serve as run

    line = FrontLine(home / DECIDERS)
    first, text, protected, number = line.wait()
    deployment = open_deployment(config, home, protected=protected, text=text, books=place.books)
    try:
        run(create_decider(deployment, line, (first, number), home / FRONT), settings, place=place)
    finally:
        deployment.close()
