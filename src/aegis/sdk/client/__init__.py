"""The SDK's side of the gateway: a `Decider` over HTTP, loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aegis.sdk.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module `aegis.sdk.client` has no attribute `{name}`")
    return import_module("aegis.sdk.client.client").Client
