"""Where the gateway is, and by what it is known to be the gateway.

A bearer key sent to a counterfeit gateway is lost, and its answers would be believed. TLS names the
peer; on a Unix socket the kernel names the user who listens. Plain TCP names nobody.
"""

from __future__ import annotations

import os
import ssl
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from aegis.errors import InvalidCall
from aegis.sdk.client.http1 import check_header_value
from aegis.sdk.client.peer import PeerSocket, peer_uid


class CounterfeitGateway(OSError):
    """The socket is held by a user who is not the gateway's."""


class GatewayEndpoint(Struct, frozen=True, kw_only=True):
    """One gateway. `uds` is the path of its Unix socket, `uid` the user it must run as there."""

    scheme: str
    host: str
    port: int
    uds: str | None = None
    uid: int | None = None
    ca: str | None = None

    @property
    def host_header(self) -> str:
        """The value of the `host` header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return name if self.port == _DEFAULT_PORTS[self.scheme] else f"{name}:{self.port}"

    @property
    def authenticated(self) -> bool:
        """Whether a connection proves that its other end is the gateway."""
        return self.uds is not None or self.scheme == "https"

    def tls(self) -> ssl.SSLContext | None:
        """The context that verifies the gateway's certificate and name; `None` without TLS."""
        if self.uds is not None or self.scheme != "https":
            return None
        return ssl.create_default_context(cafile=self.ca)

    def check_peer(self, connected: PeerSocket) -> None:
        """Raise `CounterfeitGateway` unless a Unix socket is held by the expected user.

        Expected are `uid`, or the user of this process where none is set, and root, who owns both ends.
        """
        if self.uds is None:
            return
        uid = peer_uid(connected)
        if uid not in (0, os.geteuid() if self.uid is None else self.uid):
            raise CounterfeitGateway("the gateway's socket is held by another user")


_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def endpoint(url: str, *, uds: str | None = None, uid: int | None = None, ca: str | None = None) -> GatewayEndpoint:
    """The endpoint that `url` names: `http://`, `https://`, or `unix:///path` (the same as `uds`).

    Raises `InvalidCall` for any other address, one with credentials, a path, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        check_header_value(parts.hostname or "localhost")
    except ValueError as error:
        raise InvalidCall("the gateway's address is not a URL") from error
    if parts.scheme == "unix" and parts.path and not parts.netloc:
        return GatewayEndpoint(scheme="http", host="localhost", port=80, uds=parts.path, uid=uid, ca=ca)
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise InvalidCall("the gateway's address must be `http://`, `https://` or `unix:///path`")
    if parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidCall("the gateway's address must be a scheme, a host and a port alone")
    return GatewayEndpoint(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_DEFAULT_PORTS[parts.scheme] if port is None else port,
        uds=uds,
        uid=uid,
        ca=ca,
    )
