"""What a developer imports: `auto`, `session`, `protect`, `Gate`; each loads when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aegis.sdk.hooking import Report, auto, unhook
    from aegis.sdk.permits import PermitMiddleware, require_permit
    from aegis.sdk.protection import protect
    from aegis.sdk.runtime import Gate
    from aegis.sdk.sessions import session

_HOMES = {
    "Gate": "aegis.sdk.runtime",
    "PermitMiddleware": "aegis.sdk.permits",
    "Report": "aegis.sdk.hooking",
    "auto": "aegis.sdk.hooking",
    "protect": "aegis.sdk.protection",
    "require_permit": "aegis.sdk.permits",
    "session": "aegis.sdk.sessions",
    "unhook": "aegis.sdk.hooking",
}

__all__ = ["Gate", "PermitMiddleware", "Report", "auto", "protect", "require_permit", "session", "unhook"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `aegis.sdk` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
