"""A streamed result at the gateway, without any I/O of its own: lines out, verdicts in, released bytes back.

The gateway says how many bytes, from the first on, may be passed on; nothing else of the stream leaves
here, and what ends in any other way than with a recorded permission is cut.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

from aegis.client import wire
from aegis.client.http1 import Answer, WireError, request_head
from aegis.core.canonical import canonical
from aegis.core.decision import ResultDecision
from aegis.core.outcome import Reason
from aegis.core.strict_json import parse
from aegis.errors import InvalidCall, StreamCut

MAX_PIECE: Final = 524_288  # bytes that one line carries: the gateway takes lines of a mebibyte
MAX_AHEAD: Final = 1_048_576  # bytes sent and not yet answered: bounds what is kept here
_MEDIA: Final = "application/x-ndjson"


class StreamTalk:
    """One streamed result. Send `head()`, then what `pieces` and `end` give; hand what comes back to `feed`."""

    def __init__(self, decision_id: str, framing: str, *, host: str, headers: Mapping[str, str]):
        self._target = f"/v1/results/{quote(decision_id, safe='')}/stream?framing={quote(framing, safe='')}"
        self._host = host
        self._headers = {**headers, "content-type": _MEDIA, "transfer-encoding": "chunked"}
        self._answer = Answer()
        self._kept = bytearray()
        self._released = 0
        self._answered = 0
        self._sent = 0
        self.decision: ResultDecision | None = None

    @property
    def behind(self) -> int:
        """How many bytes were sent of which nothing was heard yet."""
        return self._sent - self._answered

    @property
    def holds(self) -> bool:
        """Whether the gateway holds back something that it may release in a silence."""
        return bool(self._kept)

    def head(self) -> bytes:
        """The head of the request."""
        return request_head("POST", self._target, self._host, self._headers)

    def pieces(self, chunk: bytes | str) -> Iterator[bytes]:
        """What to send for one chunk, each taken when it is sent; after each of them the gateway answers."""
        data = chunk.encode() if isinstance(chunk, str) else chunk
        for start in range(0, len(data), MAX_PIECE):
            part = data[start : start + MAX_PIECE]
            self._kept += part
            self._sent += len(part)
            yield _framed({"base64": base64.b64encode(part).decode("ascii")})

    def end(self, provenance: str | None) -> bytes:
        """What to send at the end, with the tool's signature over the whole where there is one."""
        return (b"" if provenance is None else _framed({"provenance": provenance})) + b"0\r\n\r\n"

    def feed(self, received: bytes) -> bytes:
        """The bytes that may be passed on now; `decision` is set with the last verdict.

        Raises `InvalidCall` where the gateway refuses the stream, and `WireError` for what is no verdict.
        """
        self._answer.feed(received)
        status = self._answer.status
        if status != 200:
            if self._answer.done and 400 <= status < 500 and status != 429:
                raise wire.read_error(self._answer.body, status)
            if self._answer.done:
                raise WireError("the gateway does not judge the stream")
            return b""
        passed = bytearray()
        body = self._answer.body
        while self.decision is None and (end := body.find(b"\n")) >= 0:
            line = bytes(body[:end])
            del body[: end + 1]
            passed += self._verdict(line)
        if self._answer.done and self.decision is None:
            raise WireError("the verdicts ended before the stream")
        return bytes(passed)

    def check(self) -> None:
        """Guarantee that the whole stream may be used; raises `StreamCut` otherwise."""
        if self.decision is None or not self.decision.allowed:
            raise StreamCut(self.decision or wire.withheld(Reason.UNAVAILABLE))

    def _verdict(self, line: bytes) -> bytes:
        try:
            value = parse(line)
            counts = (value["bytes"], value["released"])
            final = value["final"]
            if final is True:
                self.decision = wire.read_result(line)
        except (InvalidCall, KeyError, TypeError, wire.BadAnswer) as error:
            raise WireError("a verdict is malformed") from error
        taken, released = counts
        if any(type(count) is not int for count in counts) or type(final) is not bool:
            raise WireError("a verdict is malformed")
        if not self._released <= released <= taken <= self._sent:
            raise WireError("a verdict releases what was not sent")
        self._answered = taken
        passed = bytes(self._kept[: released - self._released])
        del self._kept[: len(passed)]
        self._released = released
        return passed


def _framed(value: dict[str, Any]) -> bytes:
    """One line as a chunk of the body (RFC 9112, 7.1)."""
    line = canonical(value) + b"\n"
    return b"%x\r\n%s\r\n" % (len(line), line)
