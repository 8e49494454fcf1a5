"""`aegis serve`: the gateway, in the foreground, until a signal ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from aegis.cli.options import DEFAULT_PORT, AcceptRollback, ConfigFile, Home, home_of
from aegis.cli.output import print_line

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
    accept_rollback: AcceptRollback = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error")] = "info",
) -> None:
    """Run the gateway: HTTP API on TCP and on the socket in the home.

    SIGTERM and Ctrl-C drain and exit 0; SIGHUP reads the configuration again, and so does a change
    of the file. It is up when `/readyz` answers 200.
    """
    from aegis.bootstrap import open_deployment
    from aegis.bootstrap.credentials import first_link
    from aegis.proxies.hooks.door import SOCKET as HOOK_SOCKET
    from aegis.server.app import create_app
    from aegis.server.serve import SOCKET_NAME, GatewayServer, ServeSettings
    from aegis.server.serve import serve as run
    from aegis.server.telemetry import configure_logs

    configure_logs(log_level)
    deployment = open_deployment(config, home_of(home), accept_rollback=accept_rollback)
    try:
        settings = ServeSettings(
            host=host,
            port=port,
            unix=deployment.home / SOCKET_NAME,
            hooks=deployment.home / HOOK_SOCKET,
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            trusted_proxies=tuple(trusted_proxies or ()),
            insecure_plain_http=insecure_plain_http,
        )
        scheme = "http" if tls_certificate is None else "https"
        shown = f"[{host}]" if ":" in host else host

        def ready(server: GatewayServer) -> None:
            app.services.workers.start()
            print_line(f"aegis: ready at {scheme}://{shown}:{server.port} and {deployment.home / SOCKET_NAME}")
            token = first_link(deployment.store)
            if token is not None:
                print_line(
                    f"aegis: the first account is made at {scheme}://{shown}:{server.port}/welcome?token={token}"
                )
            sys.stdout.flush()

        app = create_app(deployment)
        app.models.providers()  # a key that cannot be had is an error now, not at the first request
        app.mcp.upstreams()
        run(app, settings, ready=ready)
    finally:
        deployment.close()
