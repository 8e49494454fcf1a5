"""Pages that reach an MCP endpoint under a name that was pointed at this machine (DNS rebinding).

The protocol has servers look at `Origin` on every connection and answer 403 where it is not theirs (2025-11-25,
transports, security warning). Programs send none. A page is let in where no other one can be: on this machine, under
a name of this machine, or at the gateway's own address over TLS, whose certificate no other name gets past.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers

from aegis.core.addresses import is_loopback
from aegis.errors import InvalidCall


def check_page(headers: Headers, scheme: str) -> None:
    """Guarantee that no page of elsewhere sent this request; raises `InvalidCall` (403)."""
    origins, hosts = headers.getlist("origin"), headers.getlist("host")
    if origins and not _is_own(origins, hosts, scheme):
        raise InvalidCall("pages of other origins reach no MCP server here", code="cross_origin", status=403)


def _is_own(origins: Sequence[str], hosts: Sequence[str], scheme: str) -> bool:
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        page, host = urlsplit(origins[0]), urlsplit(f"//{hosts[0]}")
        if _is_here(page) and _is_here(host):
            return True
        return page.scheme == scheme == "https" and page.netloc.lower() == host.netloc.lower() != ""
    except ValueError:
        return False


def _is_here(parts: SplitResult) -> bool:
    """Whether the name means this machine in every resolver (RFC 6761, 6.3)."""
    return is_loopback((parts.hostname or "").removesuffix("."))
