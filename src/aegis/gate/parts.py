"""What a gate is made of; `bootstrap` puts it together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from aegis.config.reload import PolicyHolder
from aegis.core.ports import Clock, Signer, Store
from aegis.gate.events import About, Listener
from aegis.log.writer import Ledger

# A step of a decision that takes long: whoever drives the steps waits for it, a thread or an event loop.

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Slow(Generic[T]):
    """Work that was started elsewhere; giving up its caller gives up the work."""

    work: Future[T]

    def wait(self) -> tuple[()]:
        """Wait in this thread."""
        try:
            wait([self.work])
        except BaseException:
            self.work.cancel()
            raise
        return ()

    async def arrive(self) -> tuple[()]:
        """Wait on the running loop."""
        try:
            await asyncio.wait([asyncio.wrap_future(self.work)])
        except asyncio.CancelledError:
            self.work.cancel()
            raise
        return ()


class Keys(Protocol):
    """The keys that a gate needs: it opens payloads, mints permits and introduces agents' keys."""

    def permit_signer(self) -> Signer: ...

    def mission_signer(self) -> Signer: ...

    def attestation_signer(self) -> Signer: ...

    def seal(self, payload: bytes) -> tuple[bytes, bytes]: ...

    def open_payload(self, key: bytes, body: bytes) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Parts:
    """One deployment: its store, log, keys and policy. `local` is the principal of this process' own agent.
    `introduce` makes sure an agent's key is in the log, `introduce_keys` the same of the keys of missions and
    attestations. What lies below `private` is shown to nobody."""

    store: Store
    ledger: Ledger
    keys: Keys
    policy: PolicyHolder
    clock: Clock
    introduce: Callable[[str], None]
    introduce_keys: Callable[[], None]
    listeners: list[Listener | About] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    private: tuple[Path, ...] = ()
    close: Callable[[], None]
    local: str = ""
