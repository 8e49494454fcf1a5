"""A real gateway in a thread of this process: real sockets, a real store, credentials of every role."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aegis.bootstrap import Deployment
from aegis.core.outcome import Role
from aegis.core.ports import Store
from aegis.core.times import system_clock
from aegis.keys.api import IssuedKey, issue, revoke_key, store_key
from aegis.proxies.hooks.door import SOCKET as HOOK_SOCKET
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
    """Keys of this store by the name of their holder."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.issued: dict[str, IssuedKey] = {}

    def add(self, name: str, *roles: Role, agent: str | None = None, tools: tuple[str, ...] = ()) -> None:
        """Give `name` a key."""
        issued = self.issued[name] = issue(roles=roles, now=system_clock(), agent=agent, tools=tools, name=name)
        with self._store.transaction() as transaction:
            store_key(transaction, issued)

    def revoke(self, name: str) -> None:
        """Take the key of `name` away."""
        with self._store.transaction() as transaction:
            revoke_key(transaction, self.issued[name].key.id, now=system_clock())

    def text(self, name: str) -> str:
        """The credential of `name`."""
        return self.issued[name].text

    def holder(self, text: str) -> str:
        """Whose credential it is."""
        return next(name for name, one in self.issued.items() if one.text == text)


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
        timeout: float = 60,
    ) -> Answer:
        """One request on a connection of its own; a body that is not bytes is sent as JSON."""
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **(headers or {})}
        if key is not None:
            sent["authorization"] = f"Bearer {self.credentials.text(key)}"
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

    def raw(self, data: bytes, *, timeout: float = 60) -> bytes:
        """Whatever the gateway says to these bytes until it closes or is silent."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            received = b""
            while chunk := connection.recv(65_536):
                received += chunk
            return received

    def head(self, path: str, *, key: str | None = "bot", **headers: str) -> bytes:
        """A `POST` up to and without its last empty line, for tests that write the rest themselves."""
        lines = [f"POST {path} HTTP/1.1", "Host: gateway"]
        if key is not None:
            lines.append(f"Authorization: Bearer {self.credentials.text(key)}")
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "".join(f"{line}\r\n" for line in lines).encode()

    def stop(self) -> None:
        """Drain and end."""
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def served(
    home: Path, config: str = "", *, settings: ServeSettings | None = None, limits: ConnectionLimits | None = None
) -> Iterator[Served]:
    """A gateway over a deployment in `home` with keys `bot`, `other`, `auditor`, `ann` (approver), `root` (admin)."""
    place = deployment(home, config)
    credentials = Credentials(place.store)
    credentials.add("bot", "agent", agent="bot")
    credentials.add("other", "agent", agent="other")
    credentials.add("seer", "agent", "auditor", agent="seer")
    credentials.add("auditor", "auditor")
    credentials.add("ann", "approver")
    credentials.add("root", "admin")
    app = create_app(place)
    unix = home / "aegis.sock"
    chosen = replace(settings or ServeSettings(), port=0, unix=unix, hooks=home / HOOK_SOCKET, drain_seconds=5)
    if limits is not None:
        chosen = replace(chosen, limits=limits)
    started, servers = threading.Event(), []

    def ready(server: GatewayServer) -> None:
        servers.append(server)
        started.set()

    thread = threading.Thread(target=serve, args=(app, chosen), kwargs={"ready": ready}, daemon=True)
    thread.start()
    assert started.wait(60)
    running = Served(deployment=place, app=app, server=servers[0], credentials=credentials, unix=unix, thread=thread)
    try:
        yield running
    finally:
        running.stop()
        place.close()
