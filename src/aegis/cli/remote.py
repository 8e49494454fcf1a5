"""A running gateway, asked over its HTTP API as an approver, auditor or administrator."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aegis.cli.options import DEFAULT_URL, ConfigFile, Home, Json, KeyFile, Url, api_key_of
from aegis.errors import AegisError, InvalidCall

TIMEOUT_S: Final = 30.0
SOCKET: Final = "aegis.sock"


class GatewayUnreachable(AegisError):
    """No gateway answered where one was expected."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Where a gateway listens: at a URL, or on a Unix socket."""

    url: str = DEFAULT_URL
    uds: str | None = None

    def ask(self, method: str, target: str, key: str, body: Any = None) -> Any:
        """The JSON answer to one request; a body of bytes is YAML and goes as it is.

        Raises `InvalidCall` with the gateway's own words for a 4xx and `GatewayUnreachable` where no
        usable answer came.
        """
        from aegis.sdk.client.endpoint import endpoint
        from aegis.sdk.client.http1 import check_header_value
        from aegis.sdk.client.transport import SyncTransport, TransportError

        try:
            check_header_value(key or "-")
        except ValueError as error:
            raise InvalidCall("the API key holds something other than visible ASCII") from error
        media, data = body_of(body)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if data is not None:
            headers["content-type"] = media
        transport = SyncTransport(endpoint(self.url, uds=self.uds))
        try:
            answer = transport.request(method, target, headers, data, TIMEOUT_S)
        except TransportError as error:
            raise GatewayUnreachable(f"no gateway answers at `{self.uds or self.url}`") from error
        finally:
            transport.close()
        return value_of(answer.status, bytes(answer.body))


@dataclass(frozen=True, kw_only=True)
class Anywhere:
    """Where a command works, a home or the gateway at `url`, and how it answers; every member is an option."""

    home: Home = None
    config: ConfigFile = None
    url: Url = None
    key_file: KeyFile = None
    as_json: Json = False

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        """What the gateway answers to the holder of the key, as `Gateway.ask` does."""
        return Gateway(url=self.url or DEFAULT_URL).ask(method, target, api_key_of(self.key_file), body)


def body_of(body: Any) -> tuple[str, bytes | None]:
    """The media type and the bytes of a request's body: YAML for bytes, JSON for any other value, or none."""
    import orjson

    if isinstance(body, bytes):
        return "application/yaml", body
    return "application/json", None if body is None else orjson.dumps(body)


def value_of(status: int, body: bytes) -> Any:
    """The value in an answer of the HTTP API.

    Raises `InvalidCall` with the words of its error shape for a 4xx and `GatewayUnreachable` for any
    other status that is not a success.
    """
    from aegis.core.json import parse

    if status < 300:
        return parse(body)
    if not 400 <= status < 500:
        raise GatewayUnreachable(f"the gateway answered with status {status}")
    try:
        error = parse(body)["error"]
        message, code, hint = str(error["message"]), str(error["code"]), str(error.get("hint") or "")
    except (InvalidCall, KeyError, TypeError) as broken:
        raise GatewayUnreachable(f"the gateway answered with status {status}") from broken
    raise InvalidCall(message, code=code, hint=hint, status=status)


def local_gateway(home: Path) -> Gateway | None:
    """The gateway that listens on the socket of `home`, or `None` where there is no socket."""
    path = home / SOCKET
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return None
    except OSError:
        return None
    return Gateway(uds=str(path))
