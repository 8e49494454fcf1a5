"""A real gateway in a thread of this process: real sockets, a real store, credentials of every role."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aegis.bootstrap import Deployment
from aegis.core.outcome import Role
from aegis.core.principal import Principal
from aegis.server.app import App, create_app
from aegis.server.protocol import ConnectionLimits
from aegis.server.serve import GatewayServer, ServeSettings, serve
from support.deployments import deployment


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer; `json` is its parsed body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of the one error shape; fails where the body is anything else."""
        error = self.json["error"]
        assert set(self.json) == {"error"}
        assert set(error) == {"code", "message", "hint", "request_id"}
        assert error["request_id"] == self.headers["x-request-id"]
        assert self.headers["content-type"] == "application/json"
        assert "Traceback" not in self.body.decode()
        word: str = error["code"]
        return word


class Credentials:
    """Principals by key; `lost` stands for a store that cannot be asked."""

    def __init__(self) -> None:
        self.principals: dict[str, Principal] = {}

    def add(self, key: str, *roles: Role, agent: str | None = None) -> str:
        self.principals[key] = Principal(id=f"key:{key}", roles=frozenset(roles), agent=agent)
        return key

    def authenticate(self, key: str) -> Principal | None:
        return self.principals.get(key)


@dataclass(kw_only=True)
class Served:
    """A running gateway and how to ask it."""

    deployment: Deployment
    app: App
    server: GatewayServer
    credentials: Credentials
    unix: Path
    thread: threading.Thread = field(repr=False)

    @property
    def port(self) -> int:
        return self.server.port

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "bot",
        headers: Mapping[str, str] | None = None,
        timeout: float = 20,
    ) -> Answer:
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(status=response.status, headers=found, body=response.read())
        finally:
            connection.close()

    def decide(self, tool: str = "read_file", *, key: str | None = "bot", **members: Any) -> Answer:
        """One decision."""
        return self.ask("POST", "/v1/decisions", {"tool": tool, "arguments": {}, **members}, key=key)

    def raw(self, data: bytes, *, timeout: float = 10) -> bytes:
        """Whatever the gateway says to these bytes until it closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
            return received

    def stop(self) -> None:
        """Drain and end."""
        self.server.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


@contextmanager
def served(
    home: Path, config: str = "", *, limits: ConnectionLimits | None = None, place: Deployment | None = None
) -> Iterator[Served]:
    """A gateway over a deployment in `home` with keys `bot`, `other`, `auditor`, `ann` (approver), `root` (admin)."""
    place = place or deployment(home, config)
    credentials = Credentials()
    credentials.add("bot", "agent", agent="bot")
    credentials.add("other", "agent", agent="other")
    credentials.add("seer", "agent", "auditor", agent="seer")
    credentials.add("auditor", "auditor")
    credentials.add("ann", "approver")
    credentials.add("root", "admin")
    app = create_app(place.gate, credentials)
    unix = home / "aegis.sock"
    settings = ServeSettings(port=0, unix=unix, drain_seconds=5, limits=limits or ConnectionLimits())
    started, servers = threading.Event(), []

    def ready(server: GatewayServer) -> None:
        servers.append(server)
        started.set()

    thread = threading.Thread(target=serve, args=(app, settings), kwargs={"ready": ready}, daemon=True)
    thread.start()
    assert started.wait(20)
    running = Served(deployment=place, app=app, server=servers[0], credentials=credentials, unix=unix, thread=thread)
    try:
        yield running
    finally:
        running.stop()
        place.close()
