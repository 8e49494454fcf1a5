"""What programs that serve the protocol to tests end with."""

from __future__ import annotations

import socket

import uvicorn
from starlette.types import ASGIApp


def serve(app: ASGIApp) -> None:
    """Serve at a free port, whose number is the first line of the output."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        print(listener.getsockname()[1], flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
