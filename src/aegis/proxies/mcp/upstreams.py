"""MCP servers over streamable HTTP: where they are, and what crosses the line to and from them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aegis.egress import Egress, EgressPolicy, Request, Streamed
from aegis.errors import ConfigError, EgressError, InvalidCall, KeyFileError
from aegis.guards.descriptions import DescriptionScanner
from aegis.keys.reference import Secret, read_secret
from aegis.pipeline.config import Config
from aegis.proxies.mcp.pins import PinFile
from aegis.proxies.mcp.tools import ToolBook
from aegis.rules.scanner import Scanner

MAX_ANSWER_BYTES: Final = 67_108_864
TOTAL_S: Final = 3_600.0  # a stream is opened anew after this, as the protocol provides for
IDLE_S: Final = 900.0  # a stream on which nothing comes is cut; the client comes back with its last id
PINS: Final = "tool-pins.json"

# The headers of the protocol (2025-11-25 and 2026-07-28), and nothing else of the client's.
_TOLD: Final = ("accept", "mcp-session-id", "mcp-protocol-version", "last-event-id", "mcp-method", "mcp-name")
_PARAMETERS: Final = "mcp-param-"
_PASSED: Final = ("content-type", "mcp-session-id", "mcp-protocol-version", "retry-after", "allow")


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    """One server, ready to be asked."""

    name: str
    url: str
    secret: Secret | None = field(repr=False)
    tools: ToolBook

    def headers(self, told: Mapping[str, str], *, patched: bool = False) -> dict[str, str]:
        """The headers of a request to it; those that repeat arguments are left out where arguments were changed."""
        headers = {name: told[name] for name in _TOLD if name in told}
        if not patched:
            headers |= {name: value for name, value in told.items() if name.startswith(_PARAMETERS)}
        headers["content-type"] = "application/json"
        headers["user-agent"] = "aegis"
        if self.secret is not None:
            headers["authorization"] = f"Bearer {self.secret.reveal()}"
        return headers

    def told(self, headers: Mapping[str, str]) -> dict[str, str]:
        """What of its answer's headers the client is told."""
        return {
            name: self.clean(headers[name].encode()).decode()
            for name in _PASSED
            if name in headers and headers[name].isascii() and headers[name].isprintable()
        }

    def clean(self, data: bytes) -> bytes:
        """`data` without the server's own credential."""
        return data if self.secret is None else self.secret.redacted(data)


class Upstreams:
    """The servers of one configuration, over one client for everything that goes out."""

    def __init__(self, servers: Sequence[Upstream], egress: Egress):
        self._servers = {one.name: one for one in servers}
        self._egress = egress

    @classmethod
    def of(cls, config: Config, scanner: Scanner, home: Path) -> Upstreams:
        """Those that the configuration names; raises `ConfigError` for a key that cannot be had."""
        problems = []
        found: list[Upstream] = []
        private: set[str] = set()
        for name, one in config.settings.proxies.mcp.items():
            secret = None
            try:
                secret = None if one.key is None else read_secret(one.key)
            except KeyFileError as error:
                where = ("proxies", "mcp", name, "key")
                problems.append(config.problem(where, f"the key of the MCP server `{name}` cannot be had: {error}"))
                continue
            if one.private:
                parts = urlsplit(one.url)
                private.add(f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}")
            book = ToolBook(
                f"mcp:{name}", DescriptionScanner(scanner), PinFile(home / PINS), only_pinned=one.only_pinned
            )
            found.append(Upstream(name=name, url=one.url, secret=secret, tools=book))
        if problems:
            raise ConfigError(tuple(problems))
        policy = EgressPolicy(
            private=frozenset(private), total_seconds=TOTAL_S, idle_seconds=IDLE_S, max_bytes=MAX_ANSWER_BYTES
        )
        return cls(found, Egress(policy))

    def named(self, name: str) -> Upstream:
        """The server of that name; raises `InvalidCall` (404) where there is none."""
        found = self._servers.get(name)
        if found is None:
            raise InvalidCall("there is no MCP server of this name", code="not_found", status=404)
        return found

    @asynccontextmanager
    async def ask(
        self, server: Upstream, method: str, headers: Mapping[str, str], body: bytes = b""
    ) -> AsyncIterator[Streamed]:
        """The server's answer once its head is here; raises `InvalidCall` (502) where none comes."""
        request = Request(method=method, url=server.url, headers=headers, body=body)
        try:
            async with self._egress.stream(request) as answer:
                yield answer
        except EgressError as error:
            raise InvalidCall(
                f"the MCP server `{server.name}` did not answer as it should", code="upstream_failed", status=502
            ) from error

    async def aclose(self) -> None:
        """Close every connection."""
        await self._egress.aclose()
