"""One deployment, put together: the only place that knows all parts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aegis.approvals.previews.look import PreviewWorker
from aegis.bootstrap.gate import DeployedGate, DeploymentParts
from aegis.bootstrap.introduce import Introductions, check_foreign
from aegis.bootstrap.state import open_state
from aegis.config.config import Config
from aegis.config.reload import Change, PolicyHolder
from aegis.core.ports import Document, Store, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.detect.rules.cache import default_cache_folder
from aegis.gate.events import Event, Listener, new_id, notify
from aegis.keys.keyring import Keyring
from aegis.log.writer import Ledger, Unit
from aegis.outbound.worker import Deliveries

# Every configuration that decides is in the log before it decides, with who put it in force.

COLLECTION: Final = "policies"
GATE: Final = "gate"


def record_start(ledger: Ledger, digest: str) -> None:
    """Record the policy that this process starts with, where the log does not know it yet."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(COLLECTION, digest) is not None:
            return ()
        transaction.put_document(Document(collection=COLLECTION, key=digest, version=1, body=b"start"))
        return (_draft(digest, action="start", principal=GATE),)

    ledger.append(Unit(apply=apply))


def recorder(ledger: Ledger, listeners: Sequence[Listener]) -> Callable[[Change], None]:
    """Give what records each change of the policy; raises `StoreError` where it cannot, and nothing changes then."""

    def record(change: Change) -> None:
        draft = _draft(change.after, action=change.trigger, principal=change.by or GATE)

        def apply(transaction: Transaction) -> Sequence[Draft]:
            stored = transaction.document(COLLECTION, change.after)
            version = 1 if stored is None else stored.version + 1
            transaction.put_document(
                Document(collection=COLLECTION, key=change.after, version=version, body=change.trigger.encode())
            )
            return (draft,)

        recorded = ledger.append(Unit(apply=apply))
        notify(listeners, Event(kind="config", members=draft.members, recorded=recorded[0]))

    return record


def _draft(digest: str, *, action: str, principal: str) -> Draft:
    members: dict[str, Any] = {
        "kind": "config",
        "receipt_id": new_id(),
        "principal": principal,
        "policy_digest": digest,
        "action": action,
    }
    return Draft(members=members)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """A gate and the parts that tools beside it need (command line, gateway, doctor)."""

    home: Path
    config: Config
    config_path: Path | None
    log: str
    store: Store
    keyring: Keyring
    ledger: Ledger
    introductions: Introductions
    policy: PolicyHolder
    gate: DeployedGate
    deliveries: Deliveries

    def close(self) -> None:
        """Finish what is under way and release the store."""
        self.gate.close()


def open_deployment(
    config: Path | None = None,
    home: Path | None = None,
    *,
    agent: str | None = None,
    protected: Sequence[Path] = (),
    accept_rollback: str | None = None,
) -> Deployment:
    """Open the deployment whose state is in `home` under the configuration `config`.

    The gate acts as `agent` (default `AEGIS_AGENT`, else `local`) where no credential says otherwise. Calls that name
    the home, the configuration or one of the paths `protected` are blocked. `accept_rollback` says why a store that
    does not continue what this home saw is right, and is recorded.
    Raises `ConfigError`, `KeyFileError` or `StoreError`.
    """
    state = open_state(config, home, accept_rollback=accept_rollback)
    try:
        policy = PolicyHolder(
            state.config, path=state.config_path, cache=default_cache_folder(), protected=(state.home, *protected)
        )
        check_foreign(state.config, state.home, state.store)
        policy.also(lambda candidate: check_foreign(candidate, state.home, state.store))
        record_start(state.ledger, policy.current.digest)
    except BaseException:
        state.close()
        raise
    policy.on_change(recorder(state.ledger, state.listeners))
    policy.current.windows.follow(state.elsewhere)

    def close() -> None:
        """Let what is under way end, then release the store."""
        previews.close()
        deliveries.close()
        state.close()

    name = agent or os.environ.get("AEGIS_AGENT") or "local"
    principal = Principal(id=f"local:{name}", roles=frozenset({"agent"}), agent=name)
    parts = DeploymentParts(
        store=state.store,
        ledger=state.ledger,
        keys=state.keyring,
        policy=policy,
        clock=system_clock,
        introduce=state.introductions.agent,
        introduce_keys=state.introductions.missions,
        listeners=state.listeners,
        private=(state.home, *(() if state.config_path is None else (state.config_path,))),
        close=close,
        local=principal.id,
    )
    previews = PreviewWorker(parts, parts.dry_runs)
    state.listeners.append(previews)
    deliveries = Deliveries(state.store, system_clock)

    def told(event: Event) -> None:
        """Messages are in the outbox once an approval is on record; somebody has to send them."""
        if "approval_id" in event.members and policy.current.approval_rules.notifies:
            deliveries.start()

    state.listeners.append(told)
    return Deployment(
        home=state.home,
        config=state.config,
        config_path=state.config_path,
        log=state.log,
        store=state.store,
        keyring=state.keyring,
        ledger=state.ledger,
        introductions=state.introductions,
        policy=policy,
        gate=DeployedGate(parts, principal),
        deliveries=deliveries,
    )
