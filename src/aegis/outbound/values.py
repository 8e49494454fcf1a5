"""What goes out, what comes back, and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DEFAULT_MAX_BYTES = 4 * 1024 * 1024
"""An answer is read up to this many bytes: a webhook's receiver must not fill our memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request. `headers` are sent as given, beside those that HTTP itself needs."""

    method: str
    url: str = field(repr=False)  # a webhook's path is its credential
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """A whole answer. `headers` have lower-case names; of a repeated name the values are joined by a comma."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class EgressPolicy:
    """Where requests may go, and how long and large they may be.

    private   hosts, `name` or `name:port`, that the operator allows on private addresses and without TLS
    ca_file   PEM file of further certificate authorities
    connect_seconds, total_seconds, idle_seconds   limits of connecting, of a whole exchange, and between two chunks
    max_bytes   bytes read of an answer (of a stream: of all its chunks)
    max_connections   connections at a time; further requests wait within their `total_seconds`
    """

    private: frozenset[str] = frozenset()
    ca_file: str | None = None
    connect_seconds: float = 5.0
    total_seconds: float = 30.0
    idle_seconds: float = 30.0
    max_bytes: int = DEFAULT_MAX_BYTES
    max_connections: int = 1000

    def names(self, host: str, port: int) -> bool:
        """Whether the operator named this host, or this host with this port."""
        bare = host.strip("[]").lower().rstrip(".")
        return bare in self.private or f"{bare}:{port}" in self.private
