"""Resolving that hands out checked addresses only, so that what was checked is what is connected to."""

from __future__ import annotations

import asyncio
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from aegis.core.addresses import is_public
from aegis.errors import EgressRefused
from aegis.outbound.values import EgressPolicy


class CheckedResolver(AbstractResolver):
    """Refuses a host of which any address is private, unless the operator named it.

    One private address among public ones is enough: which of them is used is the other side's choice (rebinding).
    """

    def __init__(self, policy: EgressPolicy) -> None:
        self._policy = policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        results: list[ResolveResult] = []
        for kind, _, proto, _, address in found:
            numeric = str(address[0])
            if not self._policy.names(host, port) and not is_public(numeric):
                raise EgressRefused(f"`{host}` resolves to a private address; add it to the allow-list if meant")
            results.append(
                ResolveResult(
                    hostname=host, host=numeric, port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST
                )
            )
        return results

    async def close(self) -> None:
        """Nothing is held."""
