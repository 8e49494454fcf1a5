"""Builds a gate from a configuration: the only place that knows all parts.

Names load when they are first used: who stops an agent or makes a key waits for no gate.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aegis.bootstrap.deployment import Deployment as Deployment
    from aegis.bootstrap.deployment import open_deployment as open_deployment
    from aegis.bootstrap.state import State as State
    from aegis.bootstrap.state import open_state as open_state

_HOMES = {
    "Deployment": "aegis.bootstrap.deployment",
    "State": "aegis.bootstrap.state",
    "open_deployment": "aegis.bootstrap.deployment",
    "open_state": "aegis.bootstrap.state",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `aegis.bootstrap` has no attribute `{name}`")
    return getattr(import_module(_HOMES[name]), name)
