"""What the endpoints of one gateway work with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from aegis.approvals.waiting import Waiting
from aegis.bootstrap.gate import DeployedGate
from aegis.config.reload import PolicyHolder
from aegis.core.canonical import canonical
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.gate.gate import Decide
from aegis.gate.workers import Workers
from aegis.log.checkpoint import NoteSigner
from aegis.outbound.worker import Deliveries
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy
from aegis.server.admission import Authenticator, Scheduler, principal_of
from aegis.server.metrics import Metrics

if TYPE_CHECKING:
    from aegis.runs.worker import RunWorker
    from aegis.server.feed import Feed, Sent
    from aegis.server.health import Readiness


@dataclass(frozen=True, kw_only=True)
class Services:
    """One gateway's parts.

    `log` is the log's name, and `log_signer` gives the key that signs its checkpoints now. `draining` is
    set once no new work is taken; whoever waits looks at it.
    """

    gate: DeployedGate
    keys: Authenticator
    decide: Decide
    feed: Feed[Sent]
    metrics: Metrics
    readiness: Readiness
    waiting: Waiting
    deliveries: Deliveries
    log: str
    log_signer: Callable[[], NoteSigner]
    runs: RunWorker
    workers: Workers = field(default_factory=Workers)
    scheduler: Scheduler = field(default_factory=Scheduler)
    draining: asyncio.Event = field(default_factory=asyncio.Event)

    def evaluate(self, policy: Policy, incoming: Incoming) -> Evaluation:
        """Return what `policy` makes of a call that nobody made, waited for in a thread; raises `WorkerLost`."""
        data = canonical(incoming.arguments)
        if not self.workers.takes(incoming.principal.id, len(data)):
            return policy.evaluate(incoming)
        return self.workers.evaluate(policy, structs.replace(incoming, arguments={}), data).result()

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
