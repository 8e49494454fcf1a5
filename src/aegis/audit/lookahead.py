"""After a gap: whether the missing receipt comes later (reordered) or not at all (deleted)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aegis.audit.breaks import BreakKind
from aegis.audit.lines import read_line
from aegis.errors import LogInvalid


def name_gap(index: int, rest: Iterable[Sequence[bytes]]) -> BreakKind:
    """`reordered` where a line of `rest` has the index that is missing, else `deleted`."""
    for lines in rest:
        for line in lines:
            try:
                if read_line(line).get("index") == index:
                    return "reordered"
            except LogInvalid:
                continue  # the gap is the first defect; what is wrong further on is not asked here
    return "deleted"
