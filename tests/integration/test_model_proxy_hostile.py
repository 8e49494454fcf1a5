"""Providers that lie, break off, flood or speak nonsense: refused or cut, never crashed, and no key gets out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from support.proxied import ALLOW, BLOCK, PROVIDER_KEY, config
from support.raw_server import RawServer, Received
from support.served import Served, served

OK = b"HTTP/1.1 200 OK\r\n"
JSON = OK + b"content-type: application/json\r\n"
SSE = OK + b"content-type: text/event-stream\r\nconnection: close\r\n\r\n"
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def sized(head: bytes, body: bytes) -> bytes:
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


def delta(value: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": value, "finish_reason": reason}
    return b"data: " + json.dumps({**CHUNK, "choices": [choice]}).encode() + b"\n\n"


CALL = {
    "index": 0,
    "id": "call_mail_0123456789",
    "type": "function",
    "function": {"name": "send_email", "arguments": "{}"},
}
TWICE = b'data: {"id":"c","choices":[{"index":0,"delta":{}}],"choices":[{"index":0,"delta":{"tool_calls":[]}}]}\n\n'


@contextmanager
def behind(home: Path, answer: bytes | None, tool: str = ALLOW) -> Iterator[tuple[Served, RawServer]]:
    os.environ["TEST_PROVIDER_KEY"] = PROVIDER_KEY

    def handler(received: Received) -> bytes | None:
        return answer

    server = RawServer(handler)
    try:
        with served(home, config(f"{server.url}/v1", server.url, tool=tool)) as gateway:
            yield gateway, server
    finally:
        server.close()


WHOLE = {
    "gone": None,
    "not HTTP": b"hello\r\n\r\n",
    "not JSON": sized(JSON, b"<html>"),
    "two readings": sized(JSON, b'{"id": "a", "choices": [], "choices": [1]}'),
    "not an object": sized(JSON, b"[1]"),
    "longer than it is": JSON + b"connection: close\r\ncontent-length: 500\r\n\r\n{}",
    "another kind": sized(OK + b"content-type: text/html\r\n", b"<html>"),
    "compressed": sized(JSON + b"content-encoding: gzip\r\n", b"\x1f\x8b" + b"0" * 30),
    "elsewhere": b"HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\n\r\n",
    "its key is wrong": sized(
        b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\n",
        json.dumps({"error": {"message": f"Incorrect API key provided: {PROVIDER_KEY}"}}).encode(),
    ),
}


@pytest.mark.parametrize("answer", WHOLE.values(), ids=WHOLE.keys())
def test_an_answer_that_cannot_be_understood_is_a_502_in_the_vendors_words(
    answer: bytes | None, tmp_path: Path
) -> None:
    with behind(tmp_path / "home", answer) as (gateway, _):
        key = gateway.credentials.text("bot")
        base = f"http://127.0.0.1:{gateway.port}"
        with pytest.raises(openai.InternalServerError) as refused:
            openai.OpenAI(base_url=f"{base}/v1", api_key=key, max_retries=0).chat.completions.create(
                model="m", messages=[]
            )
        assert refused.value.status_code == 502
        assert PROVIDER_KEY not in str(refused.value)
        with pytest.raises(anthropic.InternalServerError) as refusal:
            anthropic.Anthropic(base_url=base, api_key=key, max_retries=0).messages.create(
                model="m", max_tokens=5, messages=[]
            )
        assert refusal.value.status_code == 502
        assert gateway.ask("GET", "/healthz", key=None).status == 200


STREAMS = {
    "not JSON": SSE + delta({"content": "hi"}) + b"data: {nonsense\n\n",
    "two readings": SSE + delta({"content": "hi"}) + TWICE,
    "no UTF-8": SSE + delta({"content": "hi"}) + b"data: \xff\xfe\n\n",
    "a call without an index": SSE
    + delta({"content": "hi"})
    + delta({"tool_calls": [{**CALL, "index": "0"}]}, "tool_calls"),
}


@pytest.mark.parametrize("answer", STREAMS.values(), ids=STREAMS.keys())
def test_a_malformed_stream_ends_with_the_vendors_error_and_no_call(answer: bytes, tmp_path: Path) -> None:
    with behind(tmp_path / "home", answer) as (gateway, _):
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=gateway.credentials.text("bot"), max_retries=0
        )
        said, calls = "", 0
        with pytest.raises(openai.APIError):
            for chunk in client.chat.completions.create(model="m", messages=[], stream=True):
                said += chunk.choices[0].delta.content or ""
                calls += len(chunk.choices[0].delta.tool_calls or ())
        assert said in ("hi", "")  # bytes that are no text spoil what came in one piece with them
        assert calls == 0
        assert gateway.ask("GET", "/healthz", key=None).status == 200


def test_a_call_that_is_cut_off_is_never_passed_on(tmp_path: Path) -> None:
    events = delta({"content": "hi"}) + delta({"tool_calls": [CALL]})
    head = SSE.replace(b"connection: close", b"transfer-encoding: chunked")
    cut = head + b"%x\r\n" % len(events) + events + b"\r\n0\r\n\r\n"
    with behind(tmp_path / "home", cut) as (gateway, _):
        body = {"model": "m", "messages": [], "stream": True}
        answer = gateway.ask("POST", "/v1/chat/completions", body)
        assert b"tool_calls" not in answer.body
        assert gateway.ask("GET", "/v1/receipts?kind=decision", key="auditor").json["items"] == []


HIDDEN = {
    "its name in escapes": lambda frame: frame.replace(b"tool_calls", b"tool_call\\u0073"),
    "beside a text": lambda frame: frame.replace(b'"delta": {', b'"delta": {"content": "and", '),
    "after a comment": lambda frame: b": nothing to see\n" + frame,
    "on two lines": lambda frame: frame.replace(b", ", b",\ndata: "),
    "with carriage returns": lambda frame: frame.replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("hide", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_call_that_hides_among_texts_is_decided(hide: Callable[[bytes], bytes], tmp_path: Path) -> None:
    texts = b"".join(delta({"content": f"word {number} "}) for number in range(20))
    answer = SSE + texts + hide(delta({"tool_calls": [CALL]})) + texts + delta({}, "tool_calls") + b"data: [DONE]\n\n"
    with behind(tmp_path / "home", answer, BLOCK) as (gateway, _):
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key=gateway.credentials.text("bot"), max_retries=0
        )
        chunks = list(client.chat.completions.create(model="m", messages=[], stream=True))
        said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert said.count("word 19") == 2
        assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks)
        (decision,) = gateway.ask("GET", "/v1/receipts?kind=decision", key="auditor").json["items"]
        assert (decision["tool"], decision["decision"]) == ("send_email", "block")


def test_headers_of_a_client_do_not_reach_the_provider(tmp_path: Path) -> None:
    with behind(tmp_path / "home", sized(JSON, b'{"id": "c", "choices": []}')) as (gateway, server):
        headers = {
            "host": "evil.example",
            "x-api-key": gateway.credentials.text("bot"),
            "cookie": "a=b",
            "x-forwarded-for": "1.2.3.4",
            "openai-organization": "org-1",
        }
        answer = gateway.ask("POST", "/v1/chat/completions", {"model": "m", "messages": []}, headers=headers)
        assert answer.status == 200
        (asked,) = server.received
        assert asked.headers["openai-organization"] == "org-1"
        assert asked.headers["authorization"] == f"Bearer {PROVIDER_KEY}"
        assert not {"cookie", "x-forwarded-for", "x-api-key"} & asked.headers.keys()
        assert "evil" not in asked.headers["host"]
