"""What the endpoints of one gateway work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from aegis.audit.checkpoint import NoteSigner
from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.gate import Gate
from aegis.pipeline.reload import PolicyHolder
from aegis.server.credentials import Authenticator
from aegis.server.metrics import Metrics

if TYPE_CHECKING:
    from aegis.server.events import Sent
    from aegis.server.feed import Feed
    from aegis.server.health import Readiness


class Decide(Protocol):
    """Decides one call for a principal."""

    def __call__(self, call: ToolCall, *, principal: Principal) -> Awaitable[Decision]: ...


@dataclass(frozen=True, kw_only=True)
class Services:
    """One gateway's parts.

    `log` is the log's name, and `log_signer` signs its checkpoints. `draining` is set once no new
    work is taken; whoever waits looks at it.
    """

    gate: Gate
    keys: Authenticator
    decide: Decide
    feed: Feed[Sent]
    metrics: Metrics
    readiness: Readiness
    log: str
    log_signer: NoteSigner
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def store(self) -> Store:
        return self.gate.parts.store

    @property
    def clock(self) -> Clock:
        return self.gate.parts.clock

    @property
    def policy(self) -> PolicyHolder:
        return self.gate.parts.policy
