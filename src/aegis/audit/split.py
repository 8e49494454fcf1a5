"""Blocks of a file into batches of lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from aegis.audit.breaks import Break
from aegis.errors import LogInvalid

MAX_LINE_BYTES: Final = 1_048_576  # a line is held in memory whole
BATCH_LINES: Final = 1_000


def batches(blocks: Iterable[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Batches of lines without their newlines, each with the number of its first line, from 1.

    Raises `LogInvalid` for a line that is too long, and for a last line without its newline.
    """
    first, lines, rest = 1, list[bytes](), b""
    for block in blocks:
        head, *more = block.split(b"\n")
        rest += head
        if more:
            lines.append(rest)
            lines.extend(more[:-1])
            rest = more[-1]
        if len(rest) > MAX_LINE_BYTES:
            raise _invalid("it is too long", first + len(lines))
        while len(lines) >= BATCH_LINES:
            yield first, lines[:BATCH_LINES]
            first, lines = first + BATCH_LINES, lines[BATCH_LINES:]
    if rest:
        raise _invalid("it does not end", first + len(lines))
    if lines:
        yield first, lines


def _invalid(detail: str, line: int) -> LogInvalid:
    return LogInvalid(Break(kind="not_canonical", detail=detail, line=line))
