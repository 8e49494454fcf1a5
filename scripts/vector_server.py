"""Servers that say exactly what a vector says: one answer after the other, or the verdicts of one stream."""

from __future__ import annotations

import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

Case = dict[str, Any]
Answer = dict[str, Any]

SECONDS: Final = 5.0
CHUNKED: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"


@contextmanager
def answering(answers: list[Answer], received: list[Case]) -> Iterator[str]:
    """Serve `answers` in order, one a connection; what was asked is added to `received`."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    opened: list[socket.socket] = []

    def serve() -> None:
        for answer in answers:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            opened.append(connection)
            with connection.makefile("rb") as reader:
                request = _read_request(reader)
            if request is not None:
                received.append(request)
            connection.sendall(_bytes_of(answer))
            if answer.get("then") == "hang":
                ended.wait(SECONDS)
            connection.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(SECONDS)


def _read_request(reader: Any) -> Case | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            return None
        head += line
    first, *rest = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
    method, target, _ = first.split(" ")
    return {"method": method, "target": target, "body": reader.read(int(headers.get("content-length", "0"))).decode()}


def _bytes_of(answer: Answer) -> bytes:
    if "raw" in answer:
        return base64.b64decode(answer["raw"])
    body: bytes = answer["body"].encode()
    headers = {**answer["headers"], "content-length": str(len(body)), "connection": "close"}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {answer['status']} Said\r\n{head}\r\n".encode() + body


@contextmanager
def streaming(script: Case, sent: list[str]) -> Iterator[str]:
    """Serve one streamed result: a verdict for each line that comes, and the last one at the end."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as reader:
            while reader.readline() not in (b"\r\n", b""):
                pass
            if "refusal" in script:
                connection.sendall(_bytes_of(script["refusal"]))
                connection.settimeout(SECONDS)
                reader.read()
                return
            connection.sendall(CHUNKED)
            verdicts = iter(script["verdicts"])
            while (line := _read_chunk(reader)) is not None:
                sent.append(line)
                verdict = next(verdicts, None) if "base64" in line else ""
                if verdict is None:
                    break
                if verdict:
                    _send_line(connection, verdict)
            else:
                if script["last"] is not None:
                    _send_line(connection, script["last"])
            connection.sendall(b"0\r\n\r\n")

    def guarded() -> None:
        try:
            serve()
        except OSError:
            return  # a client that refused has gone away, which is what it should do

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()
        thread.join(SECONDS)


def _read_chunk(reader: Any) -> str | None:
    size = int(reader.readline().strip() or b"0", 16)
    data: bytes = reader.read(size)
    reader.readline()
    return data.decode().rstrip("\n") if size else None


def _send_line(connection: socket.socket, line: str) -> None:
    data = line.encode() + b"\n"
    connection.sendall(b"%x\r\n%s\r\n" % (len(data), data))
