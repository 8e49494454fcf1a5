"""The one way out, against a real server on loopback that behaves, lies, stalls and floods."""

from __future__ import annotations

import asyncio
import gc
import gzip
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import pytest

from aegis.errors import EgressFailed, EgressRefused
from aegis.outbound.client import Egress, EgressPolicy, Request

Handler = Callable[[bytes, asyncio.StreamWriter], Coroutine[None, None, None]]


@asynccontextmanager
async def server(answer: bytes | Handler) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers every request with these bytes, and the requests that it saw."""
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                seen.append(head)
                if callable(answer):
                    await answer(head, writer)
                else:
                    writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    running = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield running.sockets[0].getsockname()[1], seen
    finally:
        running.close()


def policy(**changes: object) -> EgressPolicy:
    return EgressPolicy(private=frozenset({"127.0.0.1", "localhost"}), **changes)  # type: ignore[arg-type]


def body(text: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (len(text), extra, text)


async def test_a_whole_answer_comes_back_and_the_connection_is_used_again() -> None:
    async with server(body(b"hello", b"X-A: 1\r\nX-A: 2\r\n")) as (port, seen), Egress(policy()) as egress:
        for _ in range(3):
            answer = await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/a?b=%2f"))
            assert (answer.status, answer.body, answer.headers["x-a"]) == (200, b"hello", "1, 2")
    assert seen[0].startswith(b"GET /a?b=%2f HTTP/1.1\r\n")
    assert len(seen) == 3


async def test_a_stream_hands_out_chunks_as_they_arrive() -> None:
    gate = asyncio.Event()

    async def slowly(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await writer.drain()
        await gate.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with (
        server(slowly) as (port, _),
        Egress(policy()) as egress,
        egress.stream(Request(method="POST", url=f"http://127.0.0.1:{port}/", body=b"x")) as answer,
    ):
        chunks = answer.chunks()
        assert await anext(chunks) == b"one"
        gate.set()
        assert [chunk async for chunk in chunks] == [b"two"]


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/",
        "ftp://127.0.0.1/",
        "file:///etc/passwd",
        "https://",
        "https://user:pw@example.com/",
        "https://127.0.0.2/",
        "https://[::1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://10.1.2.3:8443/",
        "https://a\\@b/",
        "https://exa mple.com/",
        "https://b\u00fccher.example/",
        "https://example.com:99999/",
    ],
)
async def test_what_policy_does_not_let_out_is_refused_before_a_byte_is_sent(url: str) -> None:
    async with Egress(policy()) as egress:
        with pytest.raises(EgressRefused):
            await egress.send(Request(method="GET", url=url))


async def test_a_name_that_resolves_to_a_private_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: object, **__: object) -> list[tuple[object, ...]]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
        return [(*kind, ("93.184.216.34", 443)), (*kind, ("127.0.0.1", 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with Egress(EgressPolicy()) as egress:
        with pytest.raises(EgressRefused, match="private address"):
            await egress.send(Request(method="GET", url="https://rebind.example/"))


async def test_an_allowed_port_does_not_allow_another() -> None:
    async with (
        server(body(b"x")) as (port, _),
        server(body(b"x")) as (other, seen),
        Egress(EgressPolicy(private=frozenset({f"127.0.0.1:{port}"}))) as egress,
    ):
        assert (await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"))).status == 200
        with pytest.raises(EgressRefused):
            await egress.send(Request(method="GET", url=f"http://127.0.0.1:{other}/"))
    assert seen == []


async def test_no_redirect_is_followed() -> None:
    async with server(body(b"never")) as (other, seen):
        away = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % other
        async with server(away) as (port, _), Egress(policy()) as egress:
            assert (await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"))).status == 302
    assert seen == []


async def test_proxies_of_the_environment_and_cookies_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with server(body(b"x", b"Set-Cookie: a=b\r\n")) as (port, seen), Egress(policy()) as egress:
        for _ in range(2):
            assert (await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"))).status == 200
    assert b"ookie" not in seen[1]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"not http at all\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", id="a length that is not kept"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="a broken chunk"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", id="a header without end"),
        pytest.param(body(b"y" * 2000), id="too long"),
        pytest.param(body(gzip.compress(b"z" * 100_000), b"Content-Encoding: gzip\r\n"), id="a compressed bomb"),
    ],
)
async def test_an_answer_that_lies_or_floods_fails(answer: bytes) -> None:
    async def once(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with server(once) as (port, _), Egress(policy(max_bytes=1000)) as egress:
        with pytest.raises(EgressFailed):
            await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"))


async def test_a_server_that_says_nothing_is_given_up() -> None:
    async def silent(_: bytes, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with server(silent) as (port, _), Egress(policy()) as egress:
        with pytest.raises(EgressFailed, match="in time"):
            await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"), total_seconds=0.05)


async def test_a_server_that_is_gone_fails_without_telling_the_path() -> None:
    async with server(b"") as (port, _):
        pass
    async with Egress(policy()) as egress:
        with pytest.raises(EgressFailed) as caught:
            await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/hook/secret-token"))
    assert "secret-token" not in str(caught.value)


@pytest.mark.parametrize(
    "headers", [{"Host": "other"}, {"content-length": "5"}, {"Transfer-Encoding": "chunked"}, {"X-A": "a\r\nX-B: b"}]
)
async def test_a_header_that_would_smuggle_is_refused(headers: dict[str, str]) -> None:
    async with Egress(policy()) as egress:
        with pytest.raises(EgressRefused):
            await egress.send(Request(method="GET", url="http://127.0.0.1:1/", headers=headers))


def test_a_client_serves_one_event_loop_after_another_and_leaves_nothing_open(caplog: pytest.LogCaptureFixture) -> None:
    egress = Egress(policy())

    async def once() -> int:
        async with server(body(b"x")) as (port, _):
            return (await egress.send(Request(method="GET", url=f"http://127.0.0.1:{port}/"))).status

    assert [asyncio.run(once()), asyncio.run(once())] == [200, 200]
    asyncio.run(egress.aclose())
    gc.collect()
    assert not [record for record in caplog.records if record.getMessage().startswith("Unclosed")]


def test_the_values_that_leave_are_not_shown() -> None:
    assert "secret" not in repr(
        Request(method="GET", url="https://a.example/", headers={"A": "secret"}, body=b"secret")
    )
