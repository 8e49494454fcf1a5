"""The server of `mcp_server.py` over streamable HTTP, in a process of its own; with a token where one is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from support.mcp_port import serve
from support.mcp_server import build, note
from support.mcp_suite import serving
from support.shell import mcp_python


@dataclass(frozen=True, kw_only=True)
class Web:
    """A running server, and what it was asked."""

    url: str
    file: Path

    @property
    def calls(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []


@contextmanager
def web(tmp_path: Path, *, token: str = "") -> Iterator[Web]:
    """A server that wants `token`, if one is given."""
    tests = str(Path(__file__).parents[1])
    scripts = str(Path(__file__).parents[2] / "scripts")
    env = {**os.environ, "PYTHONPATH": f"{tests}{os.pathsep}{scripts}", "MCP_CALLS": str(tmp_path / "calls")}
    with serving([str(mcp_python()), __file__, token], env=env, stderr=subprocess.DEVNULL) as port:
        yield Web(url=f"http://127.0.0.1:{port}/mcp", file=tmp_path / "calls")


class Guarded:
    """Nobody gets in without the token; a tenant's name is noted."""

    def __init__(self, app: ASGIApp, token: str):
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, Any] = dict(scope.get("headers", ()))
        if scope["type"] == "http" and headers.get(b"authorization") != f"Bearer {self._token}".encode():
            await PlainTextResponse("who?", 401)(scope, receive, send)
            return
        if b"x-tenant" in headers:
            note(f"tenant {headers[b'x-tenant'].decode()}")
        await self._app(scope, receive, send)


if __name__ == "__main__":
    app: ASGIApp = build().streamable_http_app()
    serve(Guarded(app, sys.argv[1]) if sys.argv[1] else app)
