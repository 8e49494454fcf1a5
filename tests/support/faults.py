"""A store and a clock that fail on demand, and a gate over them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from aegis.bootstrap import Deployment
from aegis.bootstrap.deployment import DeployedGate
from aegis.core.ports import Reader, Store, Transaction
from aegis.core.times import system_clock
from aegis.gate.events import About, Event, Listener, notify
from aegis.log.writer import Ledger


@dataclass
class FaultyStore:
    """The store `inner`; raises `error` from the methods named in `broken`, and waits for `gate` to commit."""

    inner: Store
    broken: set[str] = field(default_factory=set)
    error: Exception | None = None
    gate: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    is_remote: bool = False

    @contextmanager
    def transaction(self, *, wait_s: float | None = None) -> Iterator[Transaction]:
        self._fail("transaction")
        with self.inner.transaction(wait_s=wait_s) as transaction:
            yield transaction
            self.entered.set()
            if self.gate is not None:
                self.gate.wait()
            self._fail("commit")

    @contextmanager
    def reader(self) -> Iterator[Reader]:
        self._fail("reader")
        with self.inner.reader() as reader:
            yield reader

    def epoch(self) -> int:
        self._fail("epoch")
        return self.inner.epoch()

    def close(self) -> None:
        self.inner.close()

    def _fail(self, method: str) -> None:
        if method in self.broken and self.error is not None:
            raise self.error


@dataclass
class Hands:
    """A clock that a test turns; microseconds since the epoch."""

    now: int = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


def gate_over(
    place: Deployment,
    *,
    store: Store | None = None,
    clock: Callable[[], int] = system_clock,
    listeners: Sequence[Callable[[Event], None]] = (),
) -> DeployedGate:
    """A gate like that of `place`, over another store, clock or audience; what `place` opened stays open."""
    home = store or place.store
    heard: list[Listener | About] = [*listeners]
    ledger = Ledger(
        store=home,
        log=place.log,
        signer_for=place.keyring.signer_for,
        seal=place.keyring.seal,
        clock=clock,
        on_clock_behind=lambda behind: notify(heard, Event(kind="clock", members={"behind_us": behind}, recorded=None)),
    )
    parts = replace(place.gate.parts, store=home, ledger=ledger, clock=clock, listeners=heard)
    return DeployedGate(parts, place.gate.principal)
