"""The SDK's side of the gateway: a `Decider` over HTTP."""

from __future__ import annotations

from aegis.client.client import Client

__all__ = ["Client"]
