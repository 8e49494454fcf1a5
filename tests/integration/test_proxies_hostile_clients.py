"""Clients and servers that play tricks with HTTP itself, against the proxies: refused or cut, nobody else notices."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aegis.proxies.models import routes
from aegis.server.protocol import ConnectionLimits
from support.proxied import PROVIDER_KEY, config
from support.raw_server import RawServer, Received
from support.served import Served, served

CHAT = "/v1/chat/completions"
MCP = "/mcp/office"
BODY = json.dumps({"model": "m", "messages": []}).encode()
WHOLE = json.dumps({"id": "c", "object": "chat.completion", "choices": []}).encode()
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
ANSWER = OK + b"content-length: %d\r\n\r\n" % len(WHOLE) + WHOLE
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@contextmanager
def behind(home: Path, answer: bytes = ANSWER, *, seconds: float = 60.0) -> Iterator[tuple[Served, RawServer]]:
    os.environ["TEST_PROVIDER_KEY"] = PROVIDER_KEY

    def handler(received: Received) -> bytes:
        return answer

    server = RawServer(handler)
    mcp = f'on_approval: wait\n  mcp: {{office: {{url: "{server.url}/mcp", private: true}}}}'
    try:
        text = config(f"{server.url}/v1", server.url, proxies=mcp)
        with served(home, text, limits=ConnectionLimits(arrival_seconds=seconds)) as gateway:
            yield gateway, server
    finally:
        server.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, RawServer]]:
    with behind(tmp_path_factory.mktemp("hostile") / "home") as made:
        yield made


def status_of(data: bytes) -> int:
    return int(data.split()[1]) if data else 0


def unharmed(gateway: Served) -> None:
    """Everybody else is served as before."""
    assert gateway.ask("POST", CHAT, BODY).status == 200


def sent(gateway: Served, path: str, lines: bytes, body: bytes) -> bytes:
    """What the gateway says to a request whose headers and body the test spells."""
    head = gateway.head(path) + b"Content-Type: application/json\r\n" + lines + b"\r\n"
    try:
        return gateway.raw(head + body, timeout=60)
    except ConnectionError:  # cut while the rest was still under way
        return b""


SMUGGLED = b"GET /v1/receipts HTTP/1.1\r\nHost: a\r\n\r\n"
TRICKS = {
    "two lengths": (b"Content-Length: %d\r\nContent-Length: 5\r\n" % len(BODY), BODY),
    "a list of lengths": (b"Content-Length: %d, 5\r\n" % len(BODY), BODY),
    "a length and chunks": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED),
    "chunks and a length": (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n" + SMUGGLED),
    "chunks that are not last": (b"Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n" + SMUGGLED),
    "a negative length": (b"Content-Length: -5\r\n", BODY),
    "a length with a sign": (b"Content-Length: +5\r\n", BODY),
    "a length beyond counting": (b"Content-Length: " + b"9" * 30 + b"\r\n", BODY),
    "a chunk of no size": (b"Transfer-Encoding: chunked\r\n", b"zz\r\n{}\r\n0\r\n\r\n"),
    "a chunk beyond counting": (b"Transfer-Encoding: chunked\r\n", b"f" * 20 + b"\r\n{}\r\n"),
    "a folded header": (b"X-A: b\r\n c\r\nContent-Length : 5\r\n", BODY),
    "a bare return": (b"X-A: b\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", BODY),
    "a null in a header": (b"X-A: b\x00c\r\nContent-Length: %d\r\n" % len(BODY), BODY),
}


@pytest.mark.parametrize("path", [CHAT, MCP])
@pytest.mark.parametrize("name", TRICKS)
def test_a_request_that_can_be_framed_in_two_ways_is_refused(
    place: tuple[Served, RawServer], name: str, path: str
) -> None:
    gateway, server = place
    asked = len(server.received)
    answer = sent(gateway, path, *TRICKS[name])
    assert status_of(answer) in (0, 400, 413)
    assert len(re.findall(rb"HTTP/1\.1 [0-9]", answer)) <= 1  # what was smuggled behind it is no request
    assert len(server.received) == asked
    unharmed(gateway)


@pytest.mark.parametrize("path", [CHAT, MCP])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_huge_body_is_refused_without_being_held(place: tuple[Served, RawServer], path: str, chunked: bool) -> None:
    gateway, server = place
    asked = len(server.received)
    lines = b"Transfer-Encoding: chunked\r\n" if chunked else b"Content-Length: 40000000000\r\n"
    piece = b"10000\r\n" + b" " * 65_536 + b"\r\n" if chunked else b" " * 65_536
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
        sending = threading.Thread(target=_flood, args=(connection, gateway.head(path) + lines + b"\r\n", piece))
        sending.start()
        try:
            answer = connection.recv(65_536)  # it comes before the body has ended, which never happens
        except ConnectionError:
            answer = b""
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        sending.join()
    assert status_of(answer) in (0, 413)
    assert len(server.received) == asked
    unharmed(gateway)


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip", "IDENTITY, gzip"])
def test_a_compressed_body_is_not_unpacked(place: tuple[Served, RawServer], encoding: str) -> None:
    gateway, _ = place
    bomb = b"\x1f\x8b\x08\x00" + b"\x00" * 100
    assert gateway.ask("POST", CHAT, bomb, headers={"content-encoding": encoding}).status == 415
    assert gateway.ask("POST", MCP, bomb, headers={"content-encoding": encoding}).status >= 400
    unharmed(gateway)


@pytest.mark.parametrize("path", [CHAT, MCP])
def test_two_credentials_are_none(place: tuple[Served, RawServer], path: str) -> None:
    gateway, _ = place
    lines = b"Authorization: Bearer other\r\nContent-Length: %d\r\nConnection: close\r\n" % len(BODY)
    assert status_of(sent(gateway, path, lines, BODY)) == 401


@pytest.mark.parametrize("path", [CHAT, MCP])
def test_a_request_that_drips_is_given_up(tmp_path: Path, path: str) -> None:
    with behind(tmp_path / "home", seconds=1.0) as (gateway, server):
        for data in (
            gateway.head(path) + b"X-Slow",
            gateway.head(path, content_length="500") + b"\r\n{",
            gateway.head(path, transfer_encoding="chunked") + b"\r\nfffff\r\n{",
        ):
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
                stop = threading.Event()
                dripping = threading.Thread(target=_drip, args=(connection, data, stop))
                dripping.start()
                try:
                    answer = connection.recv(65_536)
                finally:
                    stop.set()
                    dripping.join()
            assert status_of(answer) in (0, 408)
        assert server.received == []
        unharmed(gateway)


def _flood(connection: socket.socket, head: bytes, piece: bytes) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(head)
        while True:
            connection.sendall(piece)


def _drip(connection: socket.socket, data: bytes, stop: threading.Event) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(data)
        while not stop.wait(0.1):
            connection.sendall(b"a")


ANSWERS = {
    "two lengths": OK + b"content-length: %d\r\ncontent-length: 2\r\n\r\n" % len(WHOLE) + WHOLE,
    "a length and chunks": OK + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + WHOLE,
    "a negative length": OK + b"content-length: -1\r\n\r\n" + WHOLE,
    "a chunk of no size": OK + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + WHOLE,
    "chunks that end early": OK + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\nfff\r\n" + WHOLE,
    "a header without end": b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 200_000,
    "headers without end": b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 50_000 + b"\r\n",
    "a folded header": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nx-a: b\r\n\x00c: d\r\n\r\n",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS.keys())
def test_a_provider_that_frames_its_answer_in_two_ways_is_a_502(answer: bytes, tmp_path: Path) -> None:
    with behind(tmp_path / "home", answer) as (gateway, _):
        for path in (CHAT, MCP):
            body = BODY if path == CHAT else json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
            found = gateway.ask("POST", path, body if isinstance(body, bytes) else body.encode())
            assert found.status == 502
            assert PROVIDER_KEY.encode() not in found.body
        assert gateway.ask("GET", "/healthz", key=None).status == 200


def test_an_answer_and_an_event_without_end_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aegis.wire.sse.MAX_EVENT_BYTES", 100_000)
    monkeypatch.setattr("aegis.proxies.models.routes.MAX_ANSWER_BYTES", 100_000)
    endless = b'data: {"id": "' + b"x" * 1_000_000
    with behind(tmp_path / "stream", STREAM + endless) as (gateway, _):
        found = gateway.ask("POST", CHAT, {"model": "m", "messages": [], "stream": True})
        assert b"upstream_failed" in found.body
        assert len(found.body) < 10_000
    head = OK + b"content-length: 1000002\r\n\r\n"
    with behind(tmp_path / "whole", head + b'"' + b"x" * 1_000_000 + b'"') as (gateway, _):
        assert gateway.ask("POST", CHAT, BODY).status == 502


def test_a_client_that_does_not_read_lets_go_of_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "SEND_S", 1.0)
    event = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"x" * 60_000)
    with behind(tmp_path / "home", STREAM + event * 500) as (gateway, server):
        body = json.dumps({"model": "m", "messages": [], "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(gateway.head(CHAT, content_length=str(len(body))) + b"\r\n" + body)
            server.quiet()  # it has more to send than every buffer on the way holds: it ends when it is cut
        assert gateway.ask("GET", "/healthz", key=None).status == 200


def test_the_key_of_a_provider_is_in_no_answer_and_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = {"id": "c", "choices": [], "note": f"key {PROVIDER_KEY}"}
    data = json.dumps(told).encode()
    head = OK + f"request-id: {PROVIDER_KEY}\r\nx-ratelimit-key: {PROVIDER_KEY}\r\n".encode()
    error = head.replace(b"200 OK", b"500 Oops")
    stream = head.replace(b"application/json", b"text/event-stream") + b"connection: close\r\n\r\n"
    answers = (
        head + b"content-length: %d\r\n\r\n" % len(data) + data,
        error + b"content-length: %d\r\n\r\n" % len(data) + data,
        stream + b"data: " + data + b"\n\ndata: nonsense " + PROVIDER_KEY.encode() + b"\n\n",
        b"HTTP/1.1 " + PROVIDER_KEY.encode() + b" 200\r\n\r\n",
    )
    for number, answer in enumerate(answers):
        with behind(tmp_path / str(number), answer) as (gateway, _):
            found = gateway.ask("POST", CHAT, {"model": "m", "messages": [], "stream": answer.startswith(stream)})
            assert PROVIDER_KEY.encode() not in found.body
            assert PROVIDER_KEY not in str(found.headers)
            listed = gateway.ask("GET", "/v1/models")
            assert PROVIDER_KEY not in listed.body.decode() + str(listed.headers)
    assert PROVIDER_KEY not in caplog.text + "".join(str(vars(record)) for record in caplog.records)
