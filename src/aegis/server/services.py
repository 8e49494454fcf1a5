"""What the endpoints of one gateway work with, and whether it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Final

from msgspec import structs

from aegis.approvals.waiting import Waiting
from aegis.bootstrap.deployment import DeployedGate
from aegis.config.reload import PolicyHolder
from aegis.core.canonical import canonical
from aegis.core.ports import Clock, Store
from aegis.core.principal import Principal
from aegis.errors import InvalidCall, StoreError
from aegis.gate.gate import Decide
from aegis.gate.workers import Workers
from aegis.log.checkpoint import NoteSigner
from aegis.outbound.worker import Deliveries
from aegis.policy.model import Evaluation, Incoming
from aegis.policy.policy import Policy
from aegis.server.admission import Authenticator, Scheduler, principal_of
from aegis.server.deciders import Deciders
from aegis.server.telemetry import Metrics

if TYPE_CHECKING:
    from aegis.runs.worker import RunWorker
    from aegis.server.feed import Feed, Sent


# `/healthz`: the process answers. `/readyz`: so do its store, its log and its policy.

FRESH_S: Final = 0.5  # how long one look holds: whoever asks without a credential cannot keep the log busy
TIMEOUT_S: Final = 5.0


class Readiness:
    """Looks at the store and the log at most once in `FRESH_S` seconds, however many ask."""

    def __init__(self, store: Store):
        self._store = store
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._problem = ""

    async def check(self) -> None:
        """Guarantee that the store can be read and the log can be written; raises `InvalidCall` (503)."""
        async with self._lock:
            if monotonic() >= self._until:
                try:
                    self._problem = await asyncio.wait_for(asyncio.to_thread(self._look), TIMEOUT_S)
                except TimeoutError:
                    self._problem = "the store does not answer in time"
                self._until = monotonic() + FRESH_S
        if self._problem:
            raise InvalidCall(self._problem, code="not_ready", hint="try again later", status=503)

    def _look(self) -> str:
        try:
            with self._store.reader() as reader:
                reader.head()
        except StoreError:
            return "the store cannot be read"
        try:
            with self._store.transaction() as transaction:
                transaction.head()
        except StoreError:
            return "the log cannot be written"
        return ""


@dataclass(frozen=True, kw_only=True)
class Services:
    """One gateway's parts.

    `log` is the log's name, and `log_signer` gives the key that signs its checkpoints now. `draining` is
    set once no new work is taken; whoever waits looks at it. `deciders` are the processes that decide beside this one.
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
    deciders: Deciders | None = None

    async def counted(self) -> Metrics:
        """Return the counters of every process of this gateway, as one."""
        return self.metrics if self.deciders is None else await self.deciders.counted()

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
