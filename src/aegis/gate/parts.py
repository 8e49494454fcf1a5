"""What a gate is made of; `bootstrap` puts it together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from aegis.approvals.preview.dryrun import DryRuns
from aegis.audit.writer import Ledger
from aegis.core.ports import Clock, Signer, Store
from aegis.gate.events import Listener
from aegis.pipeline.reload import PolicyHolder


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
    listeners: list[Listener] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    private: tuple[Path, ...] = ()
    dry_runs: DryRuns = field(default_factory=DryRuns)
    close: Callable[[], None]
    local: str = ""
