"""The policy decision point: one call in, one recorded decision out.

The gate loads when it is first used: an identifier or a control unit costs nothing of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aegis.gate.gate import Gate as Gate


def __getattr__(name: str) -> Any:
    if name != "Gate":
        raise AttributeError(f"module `aegis.gate` has no attribute `{name}`")
    from aegis.gate.gate import Gate

    return Gate
