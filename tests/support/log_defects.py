"""A good export, and the means to spoil it."""

from __future__ import annotations

from typing import Any

import orjson

from aegis.core.breaks import Break
from aegis.core.canonical import canonical_record
from support.log_exports import (
    Export,
    Signed,
    decisions,
    export,
    result,
)

# Four keys, three decisions signed alone, a group of four, a result.
GOOD = export(*([item] for item in decisions(3)), decisions(4, start=7), [result(11, "r5")])
SIZE = 12


def changed(good: Export, at: int, **members: Any) -> Export:
    """The export with members of one line replaced, in canonical bytes; `None` takes a member out."""
    body = {**orjson.loads(good.lines[at]), **members}
    return good.with_line(at, canonical_record({name: value for name, value in body.items() if value is not None}))


def place(broken: Break) -> tuple[str, int, int, str]:
    return broken.kind, broken.line, broken.index, broken.receipt_id


def sealed(*signed: Signed, keys: bytes | None = None) -> Export:
    """An export in which everything is chained, signed and committed to, whatever it says."""
    return export(*([item] for item in signed), keys=keys)
