"""A provider of models that answers by a script, in the wire formats of OpenAI and Anthropic."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD: dict[str, Any] = {
    "score": 0.9, "confidence": 0.8, "reasoning": "it serves the task", "signals": [], "metadata": {},
}  # fmt: skip
BAD: dict[str, Any] = {**GOOD, "score": 0.1, "reasoning": "it deletes what nobody asked to delete"}

Asked = dict[str, Any]
Script = Callable[[Asked], Any]


@dataclass(kw_only=True)
class ScriptedModel:
    """What a test says the model says: text, a list of tool calls, bytes of a whole answer, or a status."""

    url: str
    script: Script = lambda _: GOOD
    asked: list[Asked] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    delay: float = 0.0
    held: threading.Event = field(default_factory=threading.Event)  # it answers while this is set
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def openai(self) -> str:
        """The settings of a model that speaks as OpenAI."""
        return f"{{api: openai, url: {self.url}/v1, name: judge-1, private: true}}"

    @property
    def anthropic(self) -> str:
        """The settings of a model that speaks as Anthropic."""
        return f"{{api: anthropic, url: {self.url}, name: judge-2, private: true}}"

    def last(self) -> str:
        """The user's words of the last request."""
        return json.dumps(self.asked[-1]["messages"])


@contextmanager
def scripted_model() -> Iterator[ScriptedModel]:
    """A running provider."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with model.lock:
                model.asked.append(body)
                model.headers.append({name.lower(): value for name, value in self.headers.items()})
                model.paths.append(self.path)
            model.held.wait()
            if model.delay:
                time.sleep(model.delay)
            said = model.script(body)
            status, data = 200, b""
            if isinstance(said, int):
                status, data = said, b"{}"
            elif isinstance(said, bytes):
                data = said
            else:
                make = _openai if self.path.endswith("/chat/completions") else _anthropic
                data = json.dumps(make(said)).encode()
            self.send_response(status)
            kind = "text/event-stream" if data.startswith(b"event:") else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 256
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        model = ScriptedModel(url=f"http://127.0.0.1:{server.server_port}")
        model.held.set()
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield model
        finally:
            model.held.set()
            server.shutdown()


def _openai(said: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(said, list):
        message["tool_calls"] = [
            {"id": f"c{n}", "type": "function",
             "function": {"name": name.replace(".", "__"), "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(said)
        ]  # fmt: skip
    else:
        message["content"] = said if isinstance(said, str) else json.dumps(said)
    reason = "tool_calls" if isinstance(said, list) else "stop"
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "judge-1",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }  # fmt: skip


def _anthropic(said: Any) -> dict[str, Any]:
    if isinstance(said, list):
        content = [
            {"type": "tool_use", "id": f"t{n}", "name": name.replace(".", "__"), "input": arguments}
            for n, (name, arguments) in enumerate(said)
        ]
    else:
        content = [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "judge-2", "content": content,
        "stop_reason": "tool_use" if isinstance(said, list) else "end_turn",
        "usage": {"input_tokens": 100, "output_tokens": 20},
    }  # fmt: skip
