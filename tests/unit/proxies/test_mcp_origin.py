"""Which pages may speak to an MCP endpoint: those that no name of elsewhere can stand for."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from aegis.errors import InvalidCall
from aegis.proxies.mcp.exchange import check_page


def headers(host: str | None, *origins: str) -> Headers:
    raw = [(b"origin", origin.encode()) for origin in origins]
    return Headers(raw=raw if host is None else [(b"host", host.encode()), *raw])


@pytest.mark.parametrize(
    ("host", "origin", "scheme"),
    [
        ("localhost:8787", "http://localhost:8787", "http"),
        ("127.0.0.1:8787", "http://localhost:3000", "http"),
        ("[::1]:8787", "http://[::1]:6274", "http"),
        ("aegis.example.com", "https://aegis.example.com", "https"),
    ],
)
def test_a_page_of_this_machine_or_of_the_gateway_over_tls_is_let_in(host: str, origin: str, scheme: str) -> None:
    check_page(headers(host, origin), scheme)


def test_a_program_sends_no_origin() -> None:
    check_page(headers("aegis.internal:8787"), "http")


@pytest.mark.parametrize(
    ("host", "origins", "scheme"),
    [
        pytest.param("evil.example:8787", ["http://evil.example:8787"], "http", id="rebound name"),
        pytest.param("127.0.0.1:8787", ["http://evil.example"], "http", id="page of elsewhere"),
        pytest.param("evil.example:8787", ["http://localhost:8787"], "http", id="host of elsewhere"),
        pytest.param("127.0.0.1:8787", ["null"], "http", id="no origin that has a name"),
        pytest.param("127.0.0.1:8787", [""], "http", id="empty"),
        pytest.param("127.0.0.1:8787", ["http://localhost", "http://evil.example"], "http", id="two"),
        pytest.param("127.0.0.1:8787", ["http://localhost.evil.example"], "http", id="longer name"),
        pytest.param("127.0.0.1:8787", ["http://[::1"], "http", id="no address"),
        pytest.param("aegis.example.com", ["https://evil.example"], "https", id="page of elsewhere over tls"),
        pytest.param("aegis.example.com", ["http://aegis.example.com"], "http", id="own name without tls"),
        pytest.param(None, ["https://"], "https", id="no host"),
    ],
)
def test_a_page_of_elsewhere_is_refused_whatever_name_it_came_by(
    host: str | None, origins: list[str], scheme: str
) -> None:
    with pytest.raises(InvalidCall) as refused:
        check_page(headers(host, *origins), scheme)
    assert (refused.value.status, refused.value.code) == (403, "cross_origin")
