"""Streamable HTTP through the gateway, beyond calls: questions, cancellation, sessions, broken streams, batches."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import FileUrl

from support.mcp_suite import everything
from support.mcp_web import Web, web
from support.served import Answer, Served, served

CONFIG = """
version: 1
limits: {{rate: unlimited}}
proxies:
  wait: {wait}
  mcp:
    test: {{url: "{url}", private: true}}
tools:
  "mcp:test/deploy": {{risk: high, irreversible: true}}
  "mcp:test/settle": {{risk: high, irreversible: true}}
"""
BATCHING = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


@contextmanager
def behind(tmp_path: Path, *, wait: str = "60s") -> Iterator[tuple[Served, Web]]:
    with web(tmp_path) as server, served(tmp_path / "home", CONFIG.format(url=server.url, wait=wait)) as gateway:
        yield gateway, server


@asynccontextmanager
async def connected(
    gateway: Served, *, approver: str = "", mode: Literal["legacy", "auto"] = "legacy", **more: Any
) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {gateway.credentials.text('bot')}"}
    headers |= {"aegis-approver-key": gateway.credentials.text(approver)} if approver else {}
    with anyio.fail_after(120):
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(
                streamable_http_client(f"http://127.0.0.1:{gateway.port}/mcp/test", http_client=http),
                mode=mode,
                **more,
            ) as client,
        ):
            yield client


def text(result: Any) -> str:
    return "".join(block.text for block in result.content if block.type == "text")


async def folders(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl("file:///srv/here"))])


class TestApprovalsByElicitation:
    async def test_the_person_at_the_client_is_asked_and_answers_as_the_approver_whose_key_came(
        self, tmp_path: Path
    ) -> None:
        asked: list[str] = []

        async def answer(context: Any, params: Any) -> types.ElicitResult:
            asked.append(params.message)
            return types.ElicitResult(action="accept", content={"decision": "approve" if len(asked) == 1 else "deny"})

        with behind(tmp_path) as (gateway, server):
            async with connected(gateway, approver="ann", elicitation_callback=answer) as client:
                assert text(await client.call_tool("deploy", {"to": "prod"})) == "deployed to prod"
                assert "a person denied this call" in text(await client.call_tool("deploy", {"to": "moon"}))
            assert '"prod"' in asked[0]
            assert server.calls == ["deploy prod"]

    async def test_a_key_that_may_not_approve_counts_for_nothing(self, tmp_path: Path) -> None:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"decision": "approve"})

        with behind(tmp_path, wait="2s") as (gateway, server):
            for name in ("auditor", "bot"):
                async with connected(gateway, approver=name, elicitation_callback=answer) as client:
                    with pytest.raises(Exception, match=r"not answered|not made|approve"):
                        result = await client.call_tool("deploy", {"to": "prod"})
                        assert not result.is_error, text(result)
            assert server.calls == []

    async def test_without_a_key_or_a_client_that_shows_questions_the_call_waits_for_somebody_else(
        self, tmp_path: Path
    ) -> None:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            raise AssertionError("nobody was to be asked")

        with behind(tmp_path, wait="1s") as (gateway, server):
            async with connected(gateway, elicitation_callback=answer) as client:
                assert "person has to approve" in text(await client.call_tool("deploy", {"to": "prod"}))
            async with connected(gateway, approver="ann") as client:
                assert "person has to approve" in text(await client.call_tool("deploy", {"to": "moon"}))
            assert server.calls == []


async def test_sampling_and_roots_pass(tmp_path: Path) -> None:
    async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
        said = types.TextContent(type="text", text=f"you said {params.messages[0].content.text}")
        return types.CreateMessageResult(role="assistant", content=said, model="m")

    with everything() as url, served(tmp_path / "home", CONFIG.format(url=url, wait="1s")) as gateway:
        async with connected(gateway, sampling_callback=sampled) as client:
            result = await client.call_tool("test_sampling", {"prompt": "hello"})
            assert text(result) == "LLM response: you said hello"
    with behind(tmp_path) as (gateway, _):
        async with connected(gateway, list_roots_callback=folders) as client:
            assert text(await client.call_tool("roots", {})) == "file:///srv/here"


async def test_a_stream_that_ends_before_the_answer_is_taken_up_by_its_last_event(tmp_path: Path) -> None:
    with everything() as url, served(tmp_path / "home", CONFIG.format(url=url, wait="1s")) as gateway:
        async with connected(gateway) as client:
            assert text(await client.call_tool("test_reconnection", {})) == "told after the break"


async def test_a_cancelled_call_ends_at_the_server_too(tmp_path: Path) -> None:
    with behind(tmp_path) as (gateway, server):
        async with connected(gateway) as client:
            with anyio.move_on_after(1) as scope:
                await client.call_tool("slow", {"steps": 2_000})
            assert scope.cancelled_caught
            assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"
        assert "slow" in server.calls
        assert "slow done" not in server.calls


async def test_a_call_in_rounds_of_the_stateless_protocol_is_approved_once(tmp_path: Path) -> None:
    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    with behind(tmp_path) as (gateway, server):

        def approve() -> None:
            while not (items := gateway.ask("GET", "/v1/approvals?state=pending", key="ann").json["items"]):
                time.sleep(0.05)
            given = gateway.ask("POST", f"/v1/approvals/{items[0]['id']}", {"decision": "approve"}, key="ann")
            assert given.status == 200

        async with (
            connected(gateway, mode="auto", elicitation_callback=answer) as client,
            anyio.create_task_group() as group,
        ):
            group.start_soon(anyio.to_thread.run_sync, approve)
            assert "blue" in text(await client.call_tool("settle", {"what": "door"}))
        assert server.calls == ["settle door"]
        items = gateway.ask("GET", "/v1/receipts?tool=settle", key="auditor").json["items"]
        kinds = [one["kind"] for one in items]
        assert (kinds.count("decision"), kinds.count("result")) == (1, 1)


class Session:
    """One session, message by message."""

    def __init__(self, gateway: Served, version: str = ""):
        self._gateway = gateway
        self._headers = {"accept": "application/json, text/event-stream"}
        opened = self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": BATCHING})
        self._headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        if version:
            self._headers["mcp-protocol-version"] = version
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, body: Any) -> Answer:
        return self._gateway.ask("POST", "/mcp/test", body, headers=self._headers)

    def delete(self) -> Answer:
        return self._gateway.ask("DELETE", "/mcp/test", headers=self._headers)


def messages(answer: Answer) -> list[Any]:
    """What an answer holds, whether it came whole or as events."""
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json if isinstance(answer.json, list) else [answer.json]
    lines = [line.removeprefix(b"data:") for line in answer.body.splitlines() if line.startswith(b"data:")]
    return [json.loads(line) for line in lines if line.strip()]


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": number,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def test_a_session_is_named_by_the_server_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    with behind(tmp_path) as (gateway, _):
        session = Session(gateway)
        assert messages(session.post(call(1, "add", a=1, b=2)))[0]["result"]["content"][0]["text"] == "3"
        assert session.delete().status == 200
        assert session.post(call(2, "add", a=1, b=2)).status == 404


class TestBatches:
    def test_refused_in_versions_that_have_none(self, tmp_path: Path) -> None:
        with behind(tmp_path) as (gateway, server):
            for version in ("2025-06-18", "2025-11-25", "2026-07-28", "nonsense"):
                refused = Session(gateway, version).post([call(1, "add", a=1, b=2)])
                assert (refused.status, refused.code) == (400, "unsupported")
            greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": BATCHING}
            assert Session(gateway).post([greeting, call(1, "add", a=1, b=2)]).status == 400
            assert Session(gateway).post([call(n, "add", a=1, b=2) for n in range(101)]).status == 400
            assert server.calls == []

    def test_every_call_of_one_is_decided_and_what_is_refused_is_answered_beside_the_rest(self, tmp_path: Path) -> None:
        with batching(tmp_path) as (gateway, seen):
            headers = {"accept": "application/json, text/event-stream"}
            batch = [call(1, "add", a=1, b=2), call(2, "run_command", command="rm -rf /"), call(3, "add", a=3, b=4)]
            for streamed in (False, True):
                seen.clear()
                path = "/mcp/streamed" if streamed else "/mcp/test"
                answers = {one["id"]: one for one in messages(gateway.ask("POST", path, batch, headers=headers))}
                assert answers.keys() == {1, 2, 3}
                assert answers[2]["result"]["isError"] is True
                assert answers[1]["result"] == {"content": [{"type": "text", "text": "ran 1"}]}
                assert [one["id"] for one in seen if one["method"] == "tools/call"] == [1, 3]
            seen.clear()
            alone = gateway.ask("POST", "/mcp/test", batch[1:2], headers=headers)
            assert [one["result"]["isError"] for one in alone.json] == [True]
            assert [one for one in seen if one["method"] == "tools/call"] == []


@contextmanager
def batching(tmp_path: Path) -> Iterator[tuple[Served, list[Any]]]:
    """A server of the version that has batches, which the official one refuses: answers every message of a list."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            listed = body if isinstance(body, list) else [body]
            seen.extend(listed)
            answers = [{"jsonrpc": "2.0", "id": one["id"], "result": result(one)} for one in listed if "id" in one]
            if self.path == "/streamed" and isinstance(body, list):
                kind, data = "text/event-stream", "".join(f"data: {json.dumps(one)}\n\n" for one in answers)
            else:
                kind, data = "application/json", json.dumps(answers if isinstance(body, list) else answers[0])
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data.encode())))
            self.end_headers()
            self.wfile.write(data.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Say nothing."""

    def result(message: Any) -> dict[str, Any]:
        if message["method"] == "tools/list":
            return {"tools": []}
        return {"content": [{"type": "text", "text": f"ran {message['id']}"}]}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    config = CONFIG.format(url=base, wait="1s").replace(
        "tools:\n", f'    streamed: {{url: "{base}/streamed", private: true}}\ntools:\n'
    )
    try:
        with served(tmp_path / "home", config) as gateway:
            yield gateway, seen
    finally:
        server.shutdown()
        server.server_close()
