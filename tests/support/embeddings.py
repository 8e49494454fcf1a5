"""An embeddings endpoint on this machine: a vector for each text by its words, or whatever a test scripts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

Script = Callable[[Sequence[str]], tuple[int, bytes]]
_MEANINGS = ({"mail", "mails", "read", "summarise"}, {"payment", "pay", "invite", "post", "share"})


def meant(texts: Sequence[str]) -> tuple[int, bytes]:
    """What a model would answer that knows two things: mail, and everything else that the tests do."""
    vectors = [[0.1 + len(set(text.lower().split()) & words) for words in _MEANINGS] for text in texts]
    return 200, answer_of(vectors)


def answer_of(vectors: Sequence[Sequence[float]]) -> bytes:
    """An answer of these vectors, in this order."""
    data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
    return orjson.dumps({"object": "list", "model": "m", "data": data})


@dataclass
class EmbeddingServer:
    """What was asked, and how it is answered: change `script` at any time."""

    port: int
    script: Script = meant
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @property
    def sent(self) -> list[str]:
        """Every text that came."""
        return [text for one in self.asked for text in one["input"]]


@contextmanager
def embedding_server(script: Script = meant) -> Iterator[EmbeddingServer]:
    """A server on a free port of 127.0.0.1."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = orjson.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
            told.keys.append(self.headers.get("authorization", ""))
            told.asked.append(body)
            status, data = told.script(body["input"]) if self.path == "/v1/embeddings" else (404, b"")
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing: a test prints for itself."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told = EmbeddingServer(port=server.server_address[1], script=script)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
