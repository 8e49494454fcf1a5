"""Aegis: every tool call of an AI agent is looked at before it runs, and every decision can be proved.

This front door is light: names load when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aegis._version import __version__

if TYPE_CHECKING:
    from aegis.client import Client
    from aegis.core.call import ToolCall, ToolResult
    from aegis.core.decision import Decision, ResultDecision
    from aegis.delivery.signature import verify_webhook
    from aegis.errors import AegisError, ConfigError, InvalidCall, PermitInvalid, ToolCallBlocked
    from aegis.facade import Gate, PermitMiddleware, auto, protect, require_permit, session, unhook
    from aegis.keys.offline_permits import OfflinePermits

_HOMES = {
    "AegisError": "aegis.errors",
    "Client": "aegis.client",
    "ConfigError": "aegis.errors",
    "Decision": "aegis.core.decision",
    "Gate": "aegis.facade",
    "InvalidCall": "aegis.errors",
    "OfflinePermits": "aegis.keys.offline_permits",
    "PermitInvalid": "aegis.errors",
    "PermitMiddleware": "aegis.facade",
    "ResultDecision": "aegis.core.decision",
    "ToolCall": "aegis.core.call",
    "ToolCallBlocked": "aegis.errors",
    "ToolResult": "aegis.core.call",
    "auto": "aegis.facade",
    "protect": "aegis.facade",
    "require_permit": "aegis.facade",
    "session": "aegis.facade",
    "unhook": "aegis.facade",
    "verify_webhook": "aegis.delivery.signature",
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
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
