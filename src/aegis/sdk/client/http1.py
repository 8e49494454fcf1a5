"""HTTP/1.1 as the client needs it: one request out, one answer in, without any I/O of its own.

The sync and the async transport feed the same `HttpAnswer`, so both read the wire alike. What is not
plainly one well-formed answer (RFC 9112) raises `WireError`; nothing is guessed or repaired.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct, field

MAX_HEAD_BYTES: Final = 65_536  # a head that never ends would fill the memory
MAX_BODY_BYTES: Final = 33_554_432  # a decision carries arguments of at most 4 MiB, escaped sixfold at worst

State = Literal["head", "length", "chunk-size", "chunk", "chunk-end", "trailers", "until-close", "done"]


class WireError(Exception):
    """The peer sent something other than one well-formed HTTP/1.1 answer."""


def request_bytes(method: str, target: str, host: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """One request, ready to send; names and values were checked by `check_header_value` before."""
    framed = dict(headers)
    if body is not None:
        framed.setdefault("content-type", "application/json")
        framed["content-length"] = str(len(body))
    return request_head(method, target, host, framed) + (body or b"")


def request_head(method: str, target: str, host: str, headers: Mapping[str, str]) -> bytes:
    """The head of one request."""
    lines = [f"{method} {target} HTTP/1.1", f"host: {host}", "accept: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def check_header_value(value: str) -> None:
    """Raise `ValueError` unless `value` is visible ASCII: a line break would start another header."""
    if not value or any(not "!" <= char <= "~" for char in value):
        raise ValueError("a header value holds something other than visible ASCII")


class HttpAnswer(Struct):
    """One answer, as far as it has arrived.

    `started` says that at least one byte came; `reusable` that the connection may carry another
    request once `done`.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    started: bool = False
    reusable: bool = False
    _state: State = "head"
    _left: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    @property
    def done(self) -> bool:
        """Whether the answer is complete."""
        return self._state == "done"

    def feed(self, data: bytes) -> None:
        """Take the next bytes, `b""` at the end of the stream; raises `WireError`."""
        if not data:
            self._finish()
            return
        self.started = True
        self._buffer += data
        while self._advance():
            pass
        if self.done and self._buffer:
            raise WireError("bytes follow the answer")
        if len(self.body) > MAX_BODY_BYTES:
            raise WireError("the answer is too large")

    def _finish(self) -> None:
        if self._state != "until-close":
            raise WireError("the answer was cut off")
        self._state = "done"

    def _advance(self) -> bool:
        if self._state == "head":
            return self._read_head()
        if self._state in ("length", "chunk"):
            return self._read_counted()
        if self._state == "chunk-size":
            return self._read_chunk_size()
        if self._state == "chunk-end":
            return self._read_chunk_end()
        if self._state == "trailers":
            return self._read_trailers()
        if self._state == "until-close":
            self.body += self._buffer
            self._buffer.clear()
        return False

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise WireError("the head of the answer is too large")
            return False
        first, *rest = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        self._read_status(first)
        for line in rest:
            self._read_field(line)
        if 100 <= self.status < 200:
            self.headers.clear()
            return True
        self._frame()
        return True

    def _read_status(self, line: str) -> None:
        version, _, rest = line.partition(" ")
        code = rest[:3]
        if version != "HTTP/1.1" or not (
            len(code) == 3 and code.isascii() and code.isdigit() and rest[3:4] in ("", " ")
        ):
            raise WireError("the answer does not begin with an HTTP/1.1 status line")
        self.status = int(code)

    def _read_field(self, line: str) -> None:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip() or "\n" in line:
            raise WireError("a header of the answer is malformed")
        key = name.lower()
        if key in self.headers and key in ("content-length", "transfer-encoding", "location", "retry-after"):
            raise WireError("a header of the answer is given twice")
        self.headers[key] = value.strip()

    def _frame(self) -> None:
        # RFC 9112, section 6.3: a body is framed in exactly one way, or the peers may disagree on its end.
        coding, length = self.headers.get("transfer-encoding"), self.headers.get("content-length")
        self.reusable = self.headers.get("connection", "").lower() != "close"
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise WireError("the answer is framed in more than one way")
            self._state = "chunk-size"
        elif self.status in (204, 304):
            self._state = "done"
        elif length is not None:
            if not (length.isascii() and length.isdigit()) or len(length) > 10 or int(length) > MAX_BODY_BYTES:
                raise WireError("the length of the answer is not one that is accepted")
            self._left = int(length)
            self._state = "length" if self._left else "done"
        else:
            self.reusable = False
            self._state = "until-close"

    def _read_counted(self) -> bool:
        taken = self._buffer[: self._left]
        del self._buffer[: len(taken)]
        self.body += taken
        self._left -= len(taken)
        if self._left:
            return False
        self._state = "done" if self._state == "length" else "chunk-end"
        return not self.done

    def _line(self) -> str | None:
        end = self._buffer.find(b"\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise WireError("a line of the answer is too long")
            return None
        line = bytes(self._buffer[:end]).decode("latin-1")
        del self._buffer[: end + 2]
        return line

    def _read_chunk_size(self) -> bool:
        line = self._line()
        if line is None:
            return False
        digits = line.partition(";")[0].strip()
        if not digits or len(digits) > 8 or any(char not in "0123456789abcdefABCDEF" for char in digits):
            raise WireError("a chunk of the answer has no size")
        self._left = int(digits, 16)
        if len(self.body) + self._left > MAX_BODY_BYTES:
            raise WireError("the answer is too large")
        self._state = "chunk" if self._left else "trailers"
        return True

    def _read_chunk_end(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if line:
            raise WireError("a chunk of the answer has another size than it says")
        self._state = "chunk-size"
        return True

    def _read_trailers(self) -> bool:
        line = self._line()
        if line is None:
            return False
        if not line:
            self._state = "done"
        return bool(line)
