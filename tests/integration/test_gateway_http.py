"""HTTP as raw bytes, over TCP and the Unix socket: what two servers could read differently is one refusal."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Final, Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aegis.server.protocol import ConnectionLimits, ambiguity
from support.served import Served, served

Door = Literal["tcp", "unix"]
BODY: Final = b'{"tool":"read_file","arguments":{}}'
CHUNKED: Final = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
UPGRADES: Final = (
    b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\n",
    b"Connection: keep-alive, upgrade\r\nUpgrade: TLS/1.0\r\n",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = ConnectionLimits(arrival_seconds=1.0)
    with served(tmp_path_factory.mktemp("gateway") / "home", limits=limits) as running:
        yield running


@pytest.fixture(params=["tcp", "unix"])
def door(request: pytest.FixtureRequest) -> Door:
    chosen: Door = request.param
    return chosen


def said(gateway: Served, door: Door, *pieces: bytes) -> bytes:
    """What the gateway says to the pieces, each sent after the answer to the one before began, until it closes."""
    address: tuple[str, int] | str = ("127.0.0.1", gateway.port) if door == "tcp" else str(gateway.unix)
    with socket.socket(socket.AF_INET if door == "tcp" else socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(60)
        connection.connect(address)
        received = b""
        try:
            for number, piece in enumerate(pieces):
                if number:
                    received += connection.recv(65_536)
                connection.sendall(piece)
            while chunk := connection.recv(65_536):
                received += chunk
        except ConnectionError:  # it was hung up on while it still sent
            pass
        return received


def statuses(answer: bytes) -> list[int]:
    """The statuses of the answers in a row of bytes; no body of ours holds such a line."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def post(gateway: Served, headers: bytes = b"", body: bytes = BODY, *, length: bool = True, **line: bytes) -> bytes:
    """A decision whose request line and `Host` can be others."""
    head = b"POST %s HTTP/%s\r\n%s" % (
        line.get("target", b"/v1/decisions"),
        line.get("version", b"1.1"),
        line.get("host", b"Host: gateway\r\n"),
    )
    key = gateway.credentials.text("bot").encode()
    size = b"Content-Length: %d\r\n" % len(body) if length else b""
    return b"%sAuthorization: Bearer %s\r\n%s%s\r\n%s" % (head, key, size, headers, body)


def refused(answer: bytes, status: int = 400) -> None:
    """One refusal in the one error shape, after which the connection ends."""
    assert statuses(answer) == [status]
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert set(json.loads(body)["error"]) == {"code", "message", "hint", "request_id"}


def size_of_log(gateway: Served) -> int:
    with gateway.deployment.store.reader() as reader:
        return reader.head().size


@pytest.mark.parametrize("upgrade", UPGRADES)
def test_a_body_after_an_upgrade_is_no_second_request(gateway: Served, door: Door, upgrade: bytes) -> None:
    inner = post(gateway, b"Connection: close\r\n")
    before = size_of_log(gateway)
    whole = post(gateway, upgrade, inner)
    refused(said(gateway, door, whole))
    refused(said(gateway, door, whole[: -len(inner)], inner))
    chunked = post(gateway, upgrade + b"Transfer-Encoding: chunked\r\n", b"", length=False)
    refused(said(gateway, door, chunked, b"%x\r\n%s\r\n0\r\n\r\n" % (len(inner), inner)))
    refused(said(gateway, door, post(gateway, upgrade) + inner))
    assert size_of_log(gateway) == before


@pytest.mark.parametrize("upgrade", UPGRADES)
def test_an_upgrade_without_a_body_is_answered_and_nothing_after_it_is_read(
    gateway: Served, door: Door, upgrade: bytes
) -> None:
    get = b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n%s\r\n" % upgrade
    before = size_of_log(gateway)
    assert statuses(said(gateway, door, get)) == [200]
    assert statuses(said(gateway, door, get + post(gateway))) == [200]
    assert statuses(said(gateway, door, get, post(gateway))) == [200]
    assert size_of_log(gateway) == before


@pytest.mark.parametrize(
    "host",
    [b"", b"Host: a\r\nHost: a\r\n", b"Host: a\r\nhost: b\r\n", b"Host: a b\r\n", b"Host: a,b\r\n", b"Host: u@a\r\n"],
)
def test_a_request_has_exactly_one_host(gateway: Served, door: Door, host: bytes) -> None:
    refused(said(gateway, door, post(gateway, host=host)))
    refused(said(gateway, door, post(gateway, host=host) + post(gateway)))


@pytest.mark.parametrize(
    "coding",
    [
        b"gzip, chunked", b"gzip", b"identity", b"chunked, identity", b"chunked, chunked", b"xchunked", b"\x0bchunked",
        b"chunked\r\nTransfer-Encoding: chunked", b"chunked\r\nTransfer-Encoding: identity",
        b"identity\r\nTransfer-Encoding: chunked", b"\r\n chunked", b"chunked;q=1", b"'chunked'", b"",
    ],
)  # fmt: skip
def test_only_chunked_is_a_transfer_coding(gateway: Served, door: Door, coding: bytes) -> None:
    header = b"Transfer-Encoding: %s\r\n" % coding
    refused(said(gateway, door, post(gateway, header, CHUNKED, length=False)))
    refused(said(gateway, door, post(gateway, header, CHUNKED)))


def test_chunked_is_read_beside_no_length_and_not_in_the_version_before(gateway: Served, door: Door) -> None:
    header = b"Transfer-Encoding: chunked\r\nConnection: close\r\n"
    assert statuses(said(gateway, door, post(gateway, header, CHUNKED, length=False))) == [200]
    refused(said(gateway, door, post(gateway, header, CHUNKED)))
    refused(said(gateway, door, post(gateway, header, CHUNKED, length=False, version=b"1.0")))


@pytest.mark.parametrize("length", [b"5, 5", b"+5", b"-5", b"0x5", b"3 5", b"", b"5\r\nContent-Length: 5", b"\r\n 5"])
def test_a_length_is_digits_and_said_once(gateway: Served, door: Door, length: bytes) -> None:
    refused(said(gateway, door, post(gateway, b"Content-Length: %s\r\n" % length, length=False)))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\nHost: a\n\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\x00b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX\x00: b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET /heal\x01thz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.2\r\nHost: a\r\n\r\n",
        b"GET http://elsewhere/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET http://u:p@a/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_not_spelled_as_the_standard_says_is_refused(gateway: Served, door: Door, request_bytes: bytes) -> None:
    refused(said(gateway, door, request_bytes))
    refused(said(gateway, door, request_bytes + post(gateway)))


def test_a_target_may_name_this_server(gateway: Served, door: Door) -> None:
    request = post(gateway, b"Connection: close\r\n", target=b"http://Gateway/v1/decisions")
    assert statuses(said(gateway, door, request)) == [200]


def test_an_expectation_that_is_not_known_fails(gateway: Served, door: Door) -> None:
    refused(said(gateway, door, post(gateway, b"Expect: 200-ok\r\n") + post(gateway)), 417)


def test_trailers_are_no_headers_and_end(gateway: Served, door: Door) -> None:
    key = gateway.credentials.text("bot").encode()
    trailer = b"Authorization: Bearer %s\r\n" % key
    chunks = CHUNKED[:-2]
    head = b"POST /v1/decisions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    assert statuses(said(gateway, door, head + chunks + trailer + b"\r\n")) == [401]
    ours = post(gateway, b"Transfer-Encoding: chunked\r\nConnection: close\r\n", b"", length=False)
    assert statuses(said(gateway, door, ours + chunks + b"X-Sum: 1\r\n\r\n")) == [200]
    many = said(gateway, door, ours + chunks + b"X-Sum: 1\r\n" * 100_000 + b"\r\n")
    assert statuses(many) in ([431], [])  # it is hung up on while it still sends


def test_the_answers_before_a_refused_request_are_the_last_ones(gateway: Served, door: Door) -> None:
    for bad in (b"BAD\r\n\r\n", post(gateway, host=b""), post(gateway, b"Transfer-Encoding: gzip\r\n", length=False)):
        before = size_of_log(gateway)
        assert statuses(said(gateway, door, post(gateway) + bad + post(gateway)))[0] == 200
        assert size_of_log(gateway) == before + 1


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    hosts=st.lists(st.sampled_from([b"a", b"b", b"a:1", b"a b", b"[::1]", b"", b"a/b", b"a\\b", b"a#b"]), max_size=3),
    codings=st.lists(st.sampled_from([b"chunked", b"CHUNKED", b"gzip", b"gzip, chunked", b"identity"]), max_size=2),
    sized=st.booleans(),
    target=st.sampled_from([b"/x", b"*", b"http://a/x", b"http://b/x", b"https://a:1/x", b"//a/x", b"a:1"]),
    version=st.sampled_from(["1.0", "1.1"]),
)
def test_what_passes_has_one_reading(
    hosts: list[bytes], codings: list[bytes], sized: bool, target: bytes, version: str
) -> None:
    headers = [(b"host", host) for host in hosts] + [(b"transfer-encoding", coding) for coding in codings]
    headers += [(b"content-length", b"5")] if sized else []
    if ambiguity(version, target, headers) is None:
        assert len(hosts) == 1 or (version == "1.0" and not hosts)
        assert all(not set(host) & set(b" /\\#@,") for host in hosts)
        assert not codings or ([coding.lower() for coding in codings] == [b"chunked"] and not sized)
        assert target[:1] in b"/*" or target.split(b"/")[2] in hosts
