"""What a grammar's parser is given: bytes of ASCII alone.

Scanners of grammars are written in C and ask `isdigit` and its like about whole code points, which reads memory
outside of a table for every one beyond 255 (C11, 7.4): a brace before a rare character ends the process. No
language here gives those characters a meaning of their own, so each of their bytes is a letter to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import thread_time
from typing import Final, NamedTuple

from tree_sitter import Language, Node, Parser, Query, QueryCursor

from aegis.facts.effort import Effort

# What is not of a grammar can take its parser as long as the square of its length, seconds for 16 KiB, and no count
# of characters, steps or repairs tells beforehand. So the parser is stopped by the time of the processor that it
# took: an honest text of 16 KiB takes four milliseconds.
_WHOLE: Final = 0.015  # seconds for a text in one piece
_PIECE: Final = 512  # bytes of a piece of a text that takes longer: pieces are parsed one by one
# A search takes the square of the children of a root that is an error: beyond these each child is searched alone.
_MOST_BROKEN: Final = 256
_READ: Final = 1_024  # bytes handed to the parser at a time
_CUTS: Final = (b"\n", b";", b" ")
_ASCII_ALONE: Final = bytes(code if code < 128 else ord("_") for code in range(256))


class Captures(NamedTuple):
    """The nodes that a query found, by the names in it; `error` where part of the text was not grammar."""

    error: bool
    nodes: dict[str, list[Node]]


def parser_bytes(text: str) -> bytes:
    """The text as bytes that every parser takes; as many as it has in UTF-8."""
    data = text.encode("utf-8", "replace")
    return data if text.isascii() else data.translate(_ASCII_ALONE)


def captures(
    language: Language, query: Query, text: str, effort: Effort, *, whole: bool = True
) -> Iterator[Captures | None]:
    """What `query` finds in the tree of a text; or in its pieces, in their order, where the whole would take too long.

    `None` ends them where `effort` does: what follows was not read. Without `whole` it is known that it would.
    """
    data = parser_bytes(text)
    found = _found(language, query, data, effort) if whole else None
    if found is not None:
        yield found
        return
    for piece in _pieces(data):
        found = _found(language, query, piece, effort)
        if found is None:
            effort.left = min(effort.left, -1)
        yield found
        if found is None:
            return


def _found(language: Language, query: Query, data: bytes, effort: Effort) -> Captures | None:
    """What stands in `data`; `None` where the parser took longer than is waited for."""
    start = thread_time()
    try:
        if len(data) <= _PIECE:  # too short to take long alone
            return _searched(query, Parser(language).parse(data).root_node) if effort.seconds > 0 else None
        end = start + min(_WHOLE, effort.seconds)
        tree = Parser(language).parse(
            lambda offset, _: data[offset : offset + _READ], progress_callback=lambda *_: thread_time() > end
        )
        return _searched(query, tree.root_node)
    except ValueError:  # how the binding says that it was stopped
        return None
    finally:
        effort.seconds -= thread_time() - start


def _searched(query: Query, root: Node) -> Captures:
    """What `query`, whose patterns are single nodes, finds below a root."""
    if root.type != "ERROR" or root.child_count <= _MOST_BROKEN:
        return Captures(root.has_error, QueryCursor(query).captures(root))
    found: dict[str, list[Node]] = {}
    for child in root.children:
        if child.child_count:
            for name, nodes in QueryCursor(query).captures(child).items():
                found.setdefault(name, []).extend(nodes)
    return Captures(True, found)


def _pieces(data: bytes) -> Iterator[bytes]:
    """The bytes in pieces, cut behind a line, else a statement, else a word, where there is one."""
    at = 0
    while at < len(data):
        end = at + _PIECE
        if end < len(data):
            end = next((cut + 1 for sign in _CUTS if (cut := data.rfind(sign, at + 1, end)) > 0), end)
        yield data[at:end]
        at = end
