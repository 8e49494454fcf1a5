"""The wire under a client: faults, keep-alive, forks, threads, and who is on the other end."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from pathlib import Path

import pytest

from aegis.core.call import ToolResult
from aegis.core.outcome import Outcome, Reason
from aegis.errors import InvalidCall
from aegis.sdk.client import Client
from support.asking import CALL, Mode, both_modes, decide, observe, said
from support.decisions import wire_decision
from support.raw_server import Received, answer, serving
from support.threads import together

GARBAGE = {
    "no HTTP": b"+PONG\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}",
    "cut head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "cut body": b"HTTP/1.1 200 OK\r\ncontent-length: 90\r\n\r\n{",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "length and chunks": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    "huge length": b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
    "bad chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "bytes after the answer": b"HTTP/1.1 503 No\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\n",
}


@both_modes
@pytest.mark.parametrize("name", GARBAGE)
def test_a_peer_that_does_not_speak_http_is_a_refusal(name: str, mode: Mode) -> None:
    def once(request: Received) -> bytes | None:
        return GARBAGE[name] if request.connection == 0 and len(server.received) == 1 else None

    with serving(once) as server:
        decision = decide(Client(server.url, timeout=0.3), CALL, mode)
    assert (decision.outcome, decision.reason) == (Outcome.BLOCK, Reason.UNAVAILABLE)
    assert len(server.received) == 1


@pytest.mark.parametrize(("given", "sent"), [(None, "Bearer sk-exported"), ("sk-given", "Bearer sk-given"), ("", None)])
def test_the_gateway_and_the_key_come_from_the_environment_where_none_is_given(
    given: str | None, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda request: answer(200, wire_decision(request.json))) as server:
        monkeypatch.setenv("AEGIS_URL", server.url)
        monkeypatch.setenv("AEGIS_API_KEY", "sk-exported")
        assert Client(api_key=given).decide(CALL).allowed
    assert server.received[0].headers.get("authorization") == sent


@both_modes
def test_chunked_answers_are_read(mode: Mode) -> None:
    def chunked(request: Received) -> bytes:
        data = json.dumps(wire_decision(request.json)).encode()
        chunks = b"".join(b"%x;x=y\r\n%s\r\n" % (len(part), part) for part in (data[:10], data[10:]))
        head = b"HTTP/1.1 100 Wait\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
        return head + chunks + b"0\r\na: b\r\n\r\n"

    with serving(chunked) as server:
        assert decide(Client(server.url), CALL, mode).allowed


@both_modes
def test_nobody_listening_is_a_refusal(mode: Mode, tmp_path: Path) -> None:
    for client in (Client("http://127.0.0.1:9"), Client(f"unix://{tmp_path}/none.sock")):
        assert decide(client, CALL, mode).reason is Reason.UNAVAILABLE
        assert observe(client, ToolResult(decision_id="d", result=1), mode).outcome is Outcome.BLOCK


@both_modes
def test_a_slow_gateway_is_a_refusal_even_if_it_trickles(mode: Mode) -> None:
    stop = threading.Event()

    def trickle(request: Received) -> bytes | None:
        stop.wait(3)
        return None

    with serving(trickle) as server:
        decision = decide(Client(server.url, timeout=0.2), CALL, mode)
        stop.set()
    assert decision.reason is Reason.UNAVAILABLE


def test_a_trickling_gateway_runs_out_of_the_whole_time() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        connected, _ = listener.accept()
        with connected:
            for byte in b"HTTP/1.1 200 OK\r\n" * 1000:
                if done.wait(0.02):
                    return
                try:
                    connected.sendall(bytes([byte]))
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        decision = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.3).decide(CALL)
    finally:
        done.set()
        thread.join(5)
        listener.close()
    assert decision.reason is Reason.UNAVAILABLE


def test_connections_are_kept_and_a_stale_one_is_replaced_once() -> None:
    stale = threading.Event()

    def handler(request: Received) -> bytes | None:
        if stale.is_set() and request.connection == 0:
            return None
        return answer(200, wire_decision(request.json))

    with serving(handler) as server:
        client = Client(server.url)
        assert client.decide(CALL).allowed
        assert client.decide(CALL).allowed
        assert server.connections == 1
        stale.set()
        assert client.decide(CALL).allowed
        assert server.connections == 2
        # The repetition was of the same call: the gateway can tell that it is one.
        last, again = server.received[-2:]
        assert last.json["call_id"] == again.json["call_id"]


@both_modes
def test_a_new_connection_that_dies_is_not_tried_again(mode: Mode) -> None:
    with serving(lambda _: None) as server:
        assert decide(Client(server.url), CALL, mode).reason is Reason.UNAVAILABLE
    assert len(server.received) == 1


async def test_async_connections_are_kept_and_a_stale_one_is_replaced_once() -> None:
    stale = threading.Event()

    def handler(request: Received) -> bytes | None:
        if stale.is_set() and request.connection == 0:
            return None
        return answer(200, wire_decision(request.json))

    with serving(handler) as server:
        client = Client(server.url)
        assert (await client.adecide(CALL)).allowed
        assert (await client.adecide(CALL)).allowed
        assert server.connections == 1
        stale.set()
        assert (await client.adecide(CALL)).allowed
        client.close()


async def test_a_cancelled_exchange_leaves_no_connection_to_mix_up() -> None:
    loop, first = asyncio.get_running_loop(), asyncio.Event()

    def handler(request: Received) -> bytes:
        if not first.is_set():
            loop.call_soon_threadsafe(first.set)
            threading.Event().wait(0.3)
        return answer(200, wire_decision(request.json))

    with serving(handler) as server:
        client = Client(server.url)
        task = asyncio.create_task(client.adecide(CALL))
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await client.adecide(CALL)).allowed
        assert server.connections == 2


def test_many_threads_share_a_client() -> None:
    with serving(said(wire_decision)) as server:
        client = Client(server.url)
        allowed: list[bool] = []
        together(24, lambda: allowed.append(client.decide(CALL).allowed))
    assert allowed == [True] * 24


def test_a_forked_child_does_not_use_the_parents_connection() -> None:
    with serving(said(wire_decision)) as server:
        client = Client(server.url)
        assert client.decide(CALL).allowed
        child = os.fork()
        if child == 0:
            os._exit(0 if client.decide(CALL).allowed else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert client.decide(CALL).allowed
        assert server.connections == 2


@pytest.fixture
def socket_path(tmp_path: Path) -> Path:
    # A socket's path holds at most 108 bytes.
    return Path(os.path.relpath(tmp_path / "gateway.sock"))


@both_modes
def test_the_owner_of_a_unix_socket_authenticates_the_gateway(mode: Mode, socket_path: Path) -> None:
    with serving(said(wire_decision), socket_path) as server:
        client = Client(uds=str(socket_path), gateway_uid=os.geteuid())
        assert client.authenticated
        assert decide(client, CALL, mode).allowed
        assert len(server.received) == 1


@both_modes
def test_a_socket_of_another_user_gets_neither_key_nor_belief(
    mode: Mode, socket_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aegis.sdk.client.endpoint.peer_uid", lambda connected: 4_242)
    with serving(said(wire_decision), socket_path) as server:
        assert decide(Client(uds=str(socket_path), api_key="secret"), CALL, mode).reason is Reason.UNAVAILABLE
        assert server.received == []
        assert decide(Client(uds=str(socket_path), gateway_uid=4_242), CALL, mode).allowed


def test_only_tls_and_owned_sockets_count_as_authenticated() -> None:
    assert not Client("http://127.0.0.1:8787").authenticated
    assert Client("https://gateway.example").authenticated
    assert Client("unix:///run/aegis.sock").authenticated


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8787", "ftp://h", "http://", "http://u:p@h", "http://h/v1", "http://h?x", "http://h:99999"]
)
def test_an_address_that_is_not_a_gateways_is_refused(url: str) -> None:
    with pytest.raises(InvalidCall):
        Client(url)


def test_a_key_that_would_start_another_header_is_refused() -> None:
    with pytest.raises(InvalidCall):
        Client("http://127.0.0.1:1", "key\r\nx-evil: 1")
