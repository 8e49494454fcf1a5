"""Whether an unsafe request was sent by a page of this cockpit, told by headers that no other page can set.

Browsers say in `Sec-Fetch-Site` where a request began (W3C Fetch Metadata); older ones, and connections that
are not secure, send `Origin` alone (RFC 6454). Without either nothing is believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from aegis.errors import InvalidCall


def check_origin(headers: Mapping[str, str]) -> None:
    """Guarantee that the request began on a page of this host; raises `InvalidCall` (403) otherwise."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        raise _foreign()
    if origin is not None:
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise _foreign()
    elif site is None:
        raise _foreign()


def is_secure(headers: Mapping[str, str], scheme: str) -> bool:
    """Whether the browser speaks TLS, to the gateway or to the proxy in front of it."""
    return scheme == "https" or headers.get("origin", "").startswith("https://")


def _foreign() -> InvalidCall:
    return InvalidCall(
        "this did not come from a page of the cockpit",
        code="cross_origin",
        hint="open the page again, and send the form from there",
        status=403,
    )
