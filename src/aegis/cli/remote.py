"""A running gateway, asked over its HTTP API as an approver, auditor or administrator."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aegis.cli.options import DEFAULT_URL
from aegis.errors import AegisError, InvalidCall

TIMEOUT_S: Final = 30.0
SOCKET: Final = "aegis.sock"


class GatewayUnreachable(AegisError):
    """No gateway answered where one was expected."""


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Where a gateway listens, and the API key to show it; the key has no representation."""

    url: str = DEFAULT_URL
    uds: str | None = None

    def ask(self, method: str, target: str, key: str, body: Any = None) -> Any:
        """The JSON answer to one request.

        Raises `InvalidCall` with the gateway's own words for a 4xx and `GatewayUnreachable` where no
        usable answer came.
        """
        import orjson

        from aegis.client.endpoint import endpoint
        from aegis.client.http1 import check_header_value
        from aegis.client.sync_transport import SyncTransport, TransportError
        from aegis.core.strict_json import parse

        try:
            check_header_value(key or "-")
        except ValueError as error:
            raise InvalidCall("the API key holds something other than visible ASCII") from error
        headers = {"authorization": f"Bearer {key}"} if key else {}
        transport = SyncTransport(endpoint(self.url, uds=self.uds))
        try:
            data = None if body is None else orjson.dumps(body)
            answer = transport.request(method, target, headers, data, TIMEOUT_S)
        except TransportError as error:
            raise GatewayUnreachable(f"no gateway answers at `{self.uds or self.url}`") from error
        finally:
            transport.close()
        if answer.status >= 500:
            raise GatewayUnreachable(f"the gateway answered with status {answer.status}")
        value = parse(bytes(answer.body))
        if answer.status >= 400:
            error_shape = value.get("error", {}) if isinstance(value, dict) else {}
            raise InvalidCall(
                str(error_shape.get("message", f"the gateway answered with status {answer.status}")),
                code=str(error_shape.get("code", "refused")),
                hint=str(error_shape.get("hint") or ""),
                status=answer.status,
            )
        return value


def local_gateway(home: Path) -> Gateway | None:
    """The gateway that listens on the socket of `home`, or `None` where there is no socket."""
    path = home / SOCKET
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return None
    except OSError:
        return None
    return Gateway(uds=str(path))
