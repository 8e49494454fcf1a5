"""A gateway as a process: `python gateway_main.py HOME PORT`; prints its port once it listens."""

from __future__ import annotations

import sys
from pathlib import Path

from aegis.bootstrap import open_deployment
from aegis.server.app import create_app
from aegis.server.logs import configure_logs
from aegis.server.serve import GatewayServer, ServeSettings, serve


def main() -> None:
    """Serve until a signal ends it."""
    home, port = Path(sys.argv[1]), int(sys.argv[2])
    configure_logs()
    place = open_deployment(home / "aegis.yaml", home)

    def ready(server: GatewayServer) -> None:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()

    try:
        serve(create_app(place), ServeSettings(port=port, unix=home / "aegis.sock"), ready=ready)
    finally:
        place.close()


if __name__ == "__main__":
    main()
