"""What a grammar's parser is given: bytes of ASCII alone.

Scanners of grammars are written in C and ask `isdigit` and its like about whole code points, which reads memory
outside of a table for every one beyond 255 (C11, 7.4): a brace before a rare character ends the process. No
language here gives those characters a meaning of their own, so each of their bytes is a letter to the parser.

How much the parser may do is counted in its own steps, so that what is read depends on the bytes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

from aegis.detect.facts import Effort

# What is not of a grammar can take its parser as long as the square of its length, seconds for 16 KiB, and nothing in
# the text tells beforehand. The parser reports every hundred operations, and what it reads again is asked for again:
# both are counts that the same bytes always come to. The densest texts without errors (`a=1` a line, a list of digits)
# take 52 such steps for a KiB, most less than half of it; broken ones take up to 16 that cost several times as much.
_STEPS: Final = 64  # for a text of whatever length
_STEPS_A_KIB: Final = 64
_READ: Final = 1_024  # bytes handed to the parser at a time
_READS_A_STEP: Final = 8  # that take it about as long as a step
# Times that a step costs more where the parser has to find its way out of errors: it tries every symbol of the
# grammar there, which no step counts.
_REPAIR: Final = 4
# What no step shows is counted by the length: a broken text costs `repair` units for so many bytes besides its steps,
# and one that is short costs nothing else but one unit, unless it takes more steps than any that is code.
_SHORT: Final = 512
_STEPS_OF_SHORT: Final = 40
_BYTES_A_UNIT: Final = 64
_PIECE: Final = 512  # bytes of a piece of a text that takes longer: pieces are parsed one by one
# A search takes the square of the children of a root that is an error: beyond these each child is searched alone.
_MOST_BROKEN: Final = 256
_CUTS: Final = (b"\n", b";", b" ")
_ASCII_ALONE: Final = bytes(code if code < 128 else ord("_") for code in range(256))


class Captures(NamedTuple):
    """The nodes that a query found, by the names in it; `error` where part of the text was not grammar."""

    error: bool
    nodes: dict[str, list[Node]]


class Grammar(NamedTuple):
    """A language with what is looked for in it; `repair` is how many times more a step costs in a broken text.

    `ended` puts behind a text what its parser must find and may not.
    """

    language: Language
    query: Query
    repair: int = _REPAIR
    ended: Callable[[bytes], bytes] | None = None


def parser_bytes(text: str) -> bytes:
    """The text as bytes that every parser takes; as many as it has in UTF-8."""
    data = text.encode("utf-8", "replace")
    return data if text.isascii() else data.translate(_ASCII_ALONE)


def captures(grammar: Grammar, text: str, effort: Effort, *, whole: bool = True) -> Iterator[Captures | None]:
    """What is found in the tree of a text; or in its pieces, in their order, where the whole would take too much.

    `None` among them says that something was not read as it stands: the text was cut, or `effort` ended. What pieces
    show counts, but nobody knows what stands across their ends. Without `whole` it is known that it takes too much.
    """
    data = parser_bytes(text)
    found = _found(grammar, data, effort) if whole else None
    yield found
    if found is not None:
        return
    for piece in _pieces(data):
        found = _found(grammar, piece, effort)
        if found is None and effort.steps <= 0:
            return
        yield found


def _found(grammar: Grammar, data: bytes, effort: Effort) -> Captures | None:
    """What stands in `data`; `None` where reading it takes more than its length or `effort` allows."""
    if grammar.ended is not None:
        data = grammar.ended(data)
    if effort.steps <= 0:
        effort.left = min(effort.left, -1)
        return None
    is_short = len(data) <= _SHORT
    own = _STEPS + len(data) * _STEPS_A_KIB // 1_024
    most = own if is_short else min(own, effort.steps)
    reads = cost = 0

    def read(offset: int, _: object) -> bytes:
        nonlocal reads
        reads += 1
        return data[offset : offset + _READ]

    def stops(_: int, is_broken: bool) -> bool:
        nonlocal cost
        cost += grammar.repair if is_broken and not is_short else 1
        return cost + reads // _READS_A_STEP > most

    tree: Tree | None
    try:
        tree = Parser(grammar.language).parse(read, progress_callback=stops)
    except ValueError:  # how the binding says that it was stopped
        tree = None
    steps = cost + reads // _READS_A_STEP
    effort.steps -= 1 + (max(0, steps - _STEPS_OF_SHORT) if is_short else steps)
    if tree is None:
        if effort.steps <= 0:
            effort.left = min(effort.left, -1)
        return None
    effort.steps -= _mended(grammar, data, tree.root_node)
    return _searched(grammar.query, tree.root_node)


def _mended(grammar: Grammar, data: bytes, root: Node) -> int:
    """The units that finding the way out of errors costs; none where there are no errors."""
    return grammar.repair * len(data) // _BYTES_A_UNIT if root.has_error else 0


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
