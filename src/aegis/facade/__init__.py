"""What a developer imports: `auto`, `session`, `protect`, `Gate`; each loads when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aegis.facade.gate import Gate
    from aegis.facade.hooking import Report, auto, unhook
    from aegis.facade.permit_middleware import PermitMiddleware
    from aegis.facade.permits import require_permit
    from aegis.facade.protection import protect
    from aegis.facade.sessions import session

_HOMES = {
    "Gate": "aegis.facade.gate",
    "PermitMiddleware": "aegis.facade.permit_middleware",
    "Report": "aegis.facade.hooking",
    "auto": "aegis.facade.hooking",
    "protect": "aegis.facade.protection",
    "require_permit": "aegis.facade.permits",
    "session": "aegis.facade.sessions",
    "unhook": "aegis.facade.hooking",
}

__all__ = ["Gate", "PermitMiddleware", "Report", "auto", "protect", "require_permit", "session", "unhook"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `aegis.facade` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
