"""Aegis: every tool call of an AI agent is looked at before it runs, and every decision can be proved.

This front door is light: names load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aegis._version import __version__

if TYPE_CHECKING:
    from aegis.core.call import ToolCall, ToolResult
    from aegis.core.decision import Decision, ResultDecision
    from aegis.errors import AegisError, ConfigError, InvalidCall, PermitInvalid, ToolCallBlocked
    from aegis.keys.permits import OfflinePermits
    from aegis.outbound.send import verify_webhook
    from aegis.sdk import Gate, PermitMiddleware, auto, protect, require_permit, session, unhook
    from aegis.sdk.client import Client

_HOMES = {
    "AegisError": "aegis.errors",
    "Client": "aegis.sdk.client",
    "ConfigError": "aegis.errors",
    "Decision": "aegis.core.decision",
    "Gate": "aegis.sdk",
    "InvalidCall": "aegis.errors",
    "OfflinePermits": "aegis.keys.permits",
    "PermitInvalid": "aegis.errors",
    "PermitMiddleware": "aegis.sdk",
    "ResultDecision": "aegis.core.decision",
    "ToolCall": "aegis.core.call",
    "ToolCallBlocked": "aegis.errors",
    "ToolResult": "aegis.core.call",
    "auto": "aegis.sdk",
    "protect": "aegis.sdk",
    "require_permit": "aegis.sdk",
    "session": "aegis.sdk",
    "unhook": "aegis.sdk",
    "verify_webhook": "aegis.outbound.send",
}

__all__ = [
    "AegisError",
    "Client",
    "ConfigError",
    "Decision",
    "Gate",
    "InvalidCall",
    "OfflinePermits",
    "PermitInvalid",
    "PermitMiddleware",
    "ResultDecision",
    "ToolCall",
    "ToolCallBlocked",
    "ToolResult",
    "__version__",
    "auto",
    "protect",
    "require_permit",
    "session",
    "unhook",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `aegis` has no attribute `{name}`")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)  # looked for once
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
