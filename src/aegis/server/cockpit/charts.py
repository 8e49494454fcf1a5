"""Charts as numbers for inline SVG: every size is computed here, since pages carry no style of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

HEIGHT: Final = 48
WIDTH: Final = 6
GAP: Final = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """One part of a column: where it is, how large, and which outcome it stands for."""

    x: int
    y: float
    height: float
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A chart of stacked columns; `peak` is the sum of the highest."""

    width: int
    pieces: tuple[Piece, ...]
    peak: int


def stacked(columns: Sequence[Sequence[int]]) -> Stack:
    """A column for each row of counts (allow, sanitize, require_approval, block), blocks at the bottom."""
    peak = max((sum(column) for column in columns), default=0)
    pieces: list[Piece] = []
    for at, column in enumerate(columns):
        y = float(HEIGHT)
        for outcome, count in zip(("block", "hold", "change", "allow"), reversed(column), strict=True):
            if count:
                # What is rare is what matters: it is never thinner than can be seen.
                height = max(1.5, count * (HEIGHT - 2) / peak)
                y = max(0.0, y - height)
                pieces.append(Piece(x=at * (WIDTH + GAP), y=round(y, 1), height=round(height, 1), outcome=outcome))
    return Stack(width=len(columns) * (WIDTH + GAP), pieces=tuple(pieces), peak=peak)
