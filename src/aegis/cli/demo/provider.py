"""A scripted model provider on loopback: the wire protocols of OpenAI and Anthropic, without a model.

It answers `POST /v1/chat/completions`, `/v1/responses` and `/v1/messages`, whole or streamed, with
the next turn of its script, and records what it was asked. It stands for a provider wherever calls
have to be real and words do not: in the demonstration, in examples and in tests.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

# One scripted turn in the wire formats of the providers, whole and as the events of a stream.

Wire = dict[str, Any]
Event = tuple[str, str]  # the name (empty for none) and the data

_PIECE: Final = 12  # characters that one event of a stream carries


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool call of a turn. Arguments given as text go out as they are, broken or not."""

    tool: str
    arguments: Wire | str
    id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """What the model says and calls in one answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()


def answer(format_: str, turn: Turn, number: int, model: str) -> Wire:
    """The whole answer; `number` makes its ids, and those of calls without one, unique."""
    return _WHOLE[format_](turn, number, model)


def call_id(call: Call, number: int, index: int) -> str:
    """The id of a call: its own, or one made of the answer's number and its place."""
    return call.id or f"call_{number}_{index}"


def _arguments(call: Call) -> str:
    return call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)


def _chat(turn: Turn, number: int, model: str) -> Wire:
    calls = [
        {"id": call_id(call, number, index), "type": "function",
         "function": {"name": call.tool, "arguments": _arguments(call)}}
        for index, call in enumerate(turn.calls)
    ]  # fmt: skip
    message: Wire = {"role": "assistant", "content": turn.text or None, "refusal": None}
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}
    return {
        "id": f"chatcmpl-{number}", "object": "chat.completion", "created": 1_700_000_000, "model": model,
        "choices": [choice], "usage": usage,
    }  # fmt: skip


def _responses(turn: Turn, number: int, model: str) -> Wire:
    output: list[Wire] = []
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        output.append(
            {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        )
    output += [
        {"id": f"fc_{number}_{index}", "type": "function_call", "call_id": call_id(call, number, index),
         "name": call.tool, "arguments": _arguments(call), "status": "completed"}
        for index, call in enumerate(turn.calls)
    ]  # fmt: skip
    usage = {
        "input_tokens": 9, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}, "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 16,
    }  # fmt: skip
    return {
        "id": f"resp_{number}", "object": "response", "created_at": 1_700_000_000, "status": "completed",
        "model": model, "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "temperature": 1.0,
        "top_p": 1.0, "usage": usage,
    }  # fmt: skip


def _anthropic(turn: Turn, number: int, model: str) -> Wire:
    content: list[Wire] = [{"type": "text", "text": turn.text, "citations": None}] if turn.text else []
    content += [
        {"type": "tool_use", "id": call_id(call, number, index), "name": call.tool, "input": _input(call)}
        for index, call in enumerate(turn.calls)
    ]
    return {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": "tool_use" if turn.calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 7},
    }  # fmt: skip


def _input(call: Call) -> Any:
    try:
        return json.loads(_arguments(call) or "{}")
    except ValueError:
        return {}  # whole messages have no way to spell broken input


def _pieces(text: str) -> Iterator[str]:
    for at in range(0, len(text), _PIECE):
        yield text[at : at + _PIECE]


def _chat_events(turn: Turn, whole: Wire) -> Iterator[Event]:
    head = {name: whole[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}

    def chunk(delta: Wire, reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return "", json.dumps({**head, "choices": [choice]})

    (choice,) = whole["choices"]
    yield chunk({"role": "assistant", "content": "" if turn.text else None})
    for piece in _pieces(turn.text):
        yield chunk({"content": piece})
    for index, call in enumerate(choice["message"].get("tool_calls", [])):
        function = call["function"]
        yield chunk({"tool_calls": [{**call, "index": index, "function": {**function, "arguments": ""}}]})
        for piece in _pieces(function["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    yield "", json.dumps({**head, "choices": [], "usage": whole["usage"]})
    yield "", "[DONE]"


def _responses_events(turn: Turn, whole: Wire) -> Iterator[Event]:
    for number, wire in enumerate(_responses_wires(turn, whole)):
        yield wire["type"], json.dumps({**wire, "sequence_number": number})


def _responses_wires(turn: Turn, whole: Wire) -> Iterator[Wire]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(whole["output"]):
        at: Wire = {"output_index": index, "item_id": item["id"]}
        if item["type"] == "message":
            (part,) = item["content"]
            at["content_index"] = 0
            yield {"type": "response.output_item.added", "output_index": index,
                   "item": {**item, "status": "in_progress", "content": []}}  # fmt: skip
            yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
            for piece in _pieces(turn.text):
                yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
            yield {"type": "response.output_text.done", **at, "text": turn.text, "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": part}
        else:
            yield {"type": "response.output_item.added", "output_index": index,
                   "item": {**item, "status": "in_progress", "arguments": ""}}  # fmt: skip
            for piece in _pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **at, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": whole}


def _anthropic_events(turn: Turn, whole: Wire) -> Iterator[Event]:
    for wire in _anthropic_wires(turn, whole):
        yield wire["type"], json.dumps(wire)


def _anthropic_wires(turn: Turn, whole: Wire) -> Iterator[Wire]:
    usage = {"input_tokens": 9, "output_tokens": 1}
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": usage}}
    yield {"type": "ping"}
    calls = iter(turn.calls)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            start: Wire = {**block, "text": ""}
            deltas: list[Wire] = [{"type": "text_delta", "text": piece} for piece in _pieces(turn.text)]
        else:
            start = {**block, "input": {}}
            spelled = _arguments(next(calls))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(spelled))]
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop: Wire = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}
    yield {"type": "message_stop"}


_WHOLE: Final[dict[str, Callable[[Turn, int, str], Wire]]] = {
    "chat": _chat, "responses": _responses, "anthropic": _anthropic,
}  # fmt: skip
EVENTS: Final[dict[str, Callable[[Turn, Wire], Iterator[Event]]]] = {
    "chat": _chat_events, "responses": _responses_events, "anthropic": _anthropic_events,
}  # fmt: skip


FORMATS: Final = {"/chat/completions": "chat", "/responses": "responses", "/messages": "anthropic"}
LAST: Final = Turn(text="done")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProviderRequest:
    """One request as the provider received it."""

    format: str
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class ScriptedProvider:
    """Serves a script of turns, one a request, until it is closed; after the last it says `done`.

    Use it as a context manager. `url` is the base URL for the OpenAI SDK, `anthropic_url` for
    Anthropic's.
    """

    script: Iterable[Turn]
    asked: list[ProviderRequest] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._turns = deque(self.script)
        self._lock = threading.Lock()
        self._count = 0
        self._server = _Server(("127.0.0.1", 0), _handler(self.next_answer))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def anthropic_url(self) -> str:
        """The base URL without a version, as the Anthropic SDK takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The base URL with a version, as the OpenAI SDK takes it."""
        return f"{self.anthropic_url}/v1"

    def next_answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> dict[str, Any] | Iterator[Event]:
        """The next turn in the format of `path`: an object, or events where a stream was asked for."""
        format_ = next(name for end, name in FORMATS.items() if path.partition("?")[0].endswith(end))
        with self._lock:
            self.asked.append(ProviderRequest(format=format_, body=body, headers=headers))
            turn = self._turns.popleft() if self._turns else LAST
            self._count += 1
            number = self._count
        whole = answer(format_, turn, number, str(body.get("model", "scripted")))
        return EVENTS[format_](turn, whole) if body.get("stream") else whole


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no news; anything else is told."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


_Answer = Callable[[str, dict[str, str], dict[str, Any]], "dict[str, Any] | Iterator[Event]"]


def _handler(respond: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
            headers = {name.lower(): value for name, value in self.headers.items()}
            try:
                found = respond(self.path, headers, body)
            except StopIteration:
                self._whole(404, {"error": {"message": "unknown path"}})
                return
            if isinstance(found, dict):
                self._whole(200, found)
            else:
                self._stream(found)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Nothing: requests are recorded, and a server in a test has no console."""

        def _whole(self, status: int, found: dict[str, Any]) -> None:
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _stream(self, events: Iterator[Event]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            try:
                for name, data in events:
                    head = f"event: {name}\n" if name else ""
                    chunk = f"{head}data: {data}\n\n".encode()
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True  # the reader has seen enough

    return Handler
