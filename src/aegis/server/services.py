"""What the endpoints of one gateway work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from aegis.audit.checkpoint import NoteSigner
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.delivery.worker import Deliveries
from aegis.gate import Gate
from aegis.gate.acting import Decide
from aegis.pipeline.reload import PolicyHolder
from aegis.server.credentials import Authenticator, principal_of
from aegis.server.metrics import Metrics
from aegis.server.waiting import Waiting

if TYPE_CHECKING:
    from aegis.server.desk import RunDesk
    from aegis.server.events import Sent
    from aegis.server.feed import Feed
    from aegis.server.health import Readiness


@dataclass(frozen=True, kw_only=True)
class Services:
    """One gateway's parts.

    `log` is the log's name, and `log_signer` gives the key that signs its checkpoints now. `draining` is
    set once no new work is taken; whoever waits looks at it.
    """

    gate: Gate
    keys: Authenticator
    decide: Decide
    feed: Feed[Sent]
    metrics: Metrics
    readiness: Readiness
    waiting: Waiting
    deliveries: Deliveries
    log: str
    log_signer: Callable[[], NoteSigner]
    desk: RunDesk
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    async def principal(self, authorization: bytes | None) -> Principal:
        """`principal_of`, without holding up the loop where the store is elsewhere."""
        return await self.gate.alook(partial(principal_of, authorization, self.keys))

    @property
    def store(self) -> Store:
        return self.gate.parts.store

    @property
    def clock(self) -> Clock:
        return self.gate.parts.clock

    @property
    def policy(self) -> PolicyHolder:
        return self.gate.parts.policy
