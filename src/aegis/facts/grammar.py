"""What a grammar's parser is given: bytes of ASCII alone.

Scanners of grammars are written in C and ask `isdigit` and its like about whole code points, which reads memory
outside of a table for every one beyond 255 (C11, 7.4): a brace before a rare character ends the process. No
language here gives those characters a meaning of their own, so each of their bytes is a letter to the parser.
"""

from __future__ import annotations

from typing import Final

_ASCII_ALONE: Final = bytes(code if code < 128 else ord("_") for code in range(256))


def parser_bytes(text: str) -> bytes:
    """The text as bytes that every parser takes; as many as it has in UTF-8."""
    data = text.encode("utf-8", "replace")
    return data if text.isascii() else data.translate(_ASCII_ALONE)
