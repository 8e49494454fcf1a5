"""What a grammar's parser is given: bytes of ASCII alone.

Scanners of grammars are written in C and ask `isdigit` and its like about whole code points, which reads memory
outside of a table for every one beyond 255 (C11, 7.4): a brace before a rare character ends the process. No
language here gives those characters a meaning of their own, so each of their bytes is a letter to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time
from typing import Final

from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from aegis.facts.effort import Effort

# What is not of a grammar can take its parser as long as the square of its length, seconds for 16 KiB, and no count
# of characters, steps or repairs tells beforehand. So the parser is stopped by the time of the processor that it
# took: an honest text of 16 KiB takes four milliseconds.
_WHOLE: Final = 0.025  # seconds for a text in one piece
_PIECE: Final = 512  # bytes of a piece of a text that takes longer: pieces are parsed one by one
_READ: Final = 1_024  # bytes handed to the parser at a time
_CUTS: Final = (b"\n", b";", b" ")
_ASCII_ALONE: Final = bytes(code if code < 128 else ord("_") for code in range(256))


def parser_bytes(text: str) -> bytes:
    """The text as bytes that every parser takes; as many as it has in UTF-8."""
    data = text.encode("utf-8", "replace")
    return data if text.isascii() else data.translate(_ASCII_ALONE)


def trees(language: Language, text: str, effort: Effort) -> Iterator[Tree | None]:
    """The tree of a text; or of its pieces, in their order, where repairing it whole would take too long.

    `None` ends the trees where `effort` does: what follows was not read.
    """
    data = parser_bytes(text)
    tree = _parsed(language, data, effort)
    if tree is not None:
        yield tree
        return
    for piece in _pieces(data):
        tree = _parsed(language, piece, effort)
        if tree is None:
            effort.left = min(effort.left, -1)
        yield tree
        if tree is None:
            return


def _parsed(language: Language, data: bytes, effort: Effort) -> Tree | None:
    """The tree of `data`; `None` where the parser took longer than is waited for."""
    start = thread_time()
    try:
        if len(data) <= _PIECE:  # too short to take long alone
            return Parser(language).parse(data) if effort.seconds > 0 else None
        end = start + min(_WHOLE, effort.seconds)
        return Parser(language).parse(
            lambda offset, _: data[offset : offset + _READ], progress_callback=lambda *_: thread_time() > end
        )
    except ValueError:  # how the binding says that it was stopped
        return None
    finally:
        effort.seconds -= thread_time() - start


def captured(query: Query, root: Node, effort: Effort) -> dict[str, list[Node]]:
    """What `query` finds below `root`; what it takes is taken from `effort`."""
    start = thread_time()
    found = QueryCursor(query).captures(root)
    effort.seconds -= thread_time() - start
    return found


def _pieces(data: bytes) -> Iterator[bytes]:
    """The bytes in pieces, cut behind a line, else a statement, else a word, where there is one."""
    at = 0
    while at < len(data):
        end = at + _PIECE
        if end < len(data):
            end = next((cut + 1 for sign in _CUTS if (cut := data.rfind(sign, at + 1, end)) > 0), end)
        yield data[at:end]
        at = end
