"""One deployment, put together: the only place that knows all parts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aegis.audit.writer import Ledger
from aegis.bootstrap.home import home_dir
from aegis.bootstrap.introduce import Introductions
from aegis.bootstrap.policy_log import record_start, recorder
from aegis.core.ports import Document, Store
from aegis.core.principal import Principal
from aegis.core.times import system_clock
from aegis.errors import StoreConflict
from aegis.gate.events import Event, Listener, notify
from aegis.gate.gate import Gate
from aegis.gate.ids import new_id
from aegis.gate.parts import Parts
from aegis.keys.keyring import Keyring
from aegis.pipeline.config import Config, load_config
from aegis.pipeline.reload import PolicyHolder
from aegis.stores import open_store

CONFIG_NAME: Final = "aegis.yaml"
_META: Final = "meta"


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
    gate: Gate

    def close(self) -> None:
        """Finish what is under way and release the store."""
        self.gate.close()


def config_file(config: Path | None, home: Path) -> Path | None:
    """The configuration to load: the one given, `AEGIS_CONFIG`, or `aegis.yaml` in the home; never elsewhere."""
    if config is not None:
        return config
    named = os.environ.get("AEGIS_CONFIG")
    if named:
        return Path(named).expanduser()
    own = home / CONFIG_NAME
    return own if own.exists() else None


def open_deployment(config: Path | None = None, home: Path | None = None, *, agent: str | None = None) -> Deployment:
    """Open the deployment whose state is in `home` under the configuration `config`.

    The gate acts as `agent` (default `AEGIS_AGENT`, else `local`) where no credential says otherwise.
    Raises `ConfigError`, `KeyFileError` or `StoreError`.
    """
    place = home_dir(home)
    path = config_file(config, place)
    settings = load_config(path)
    policy = PolicyHolder(settings, path=path, cache=place / "cache")
    keyring = Keyring(place / "keys")
    store = open_store(settings.settings.store, home=place, durability=settings.settings.durability)
    listeners: list[Listener] = []
    log = log_name(store)
    ledger = Ledger(
        store=store,
        log=log,
        signer_for=keyring.signer_for,
        seal=keyring.seal,
        clock=system_clock,
        on_clock_behind=lambda behind: notify(
            listeners, Event(kind="clock", members={"behind_us": behind}, recorded=None)
        ),
    )
    introductions = Introductions(store=store, ledger=ledger, keyring=keyring)
    for signer in (keyring.log_signer(), keyring.receipt_signer(), keyring.permit_signer()):
        introductions.key(signer)
    record_start(ledger, policy.current.digest)
    policy.on_change(recorder(ledger, listeners))
    parts = Parts(
        store=store,
        ledger=ledger,
        keys=keyring,
        policy=policy,
        clock=system_clock,
        introduce=introductions.agent,
        listeners=listeners,
        close=store.close,
    )
    name = agent or os.environ.get("AEGIS_AGENT") or "local"
    principal = Principal(id=f"local:{name}", roles=frozenset({"agent"}), agent=name)
    return Deployment(
        home=place,
        config=settings,
        config_path=path,
        log=log,
        store=store,
        keyring=keyring,
        ledger=ledger,
        introductions=introductions,
        policy=policy,
        gate=Gate(parts, principal),
    )


def log_name(store: Store) -> str:
    """The name of this store's log, which every receipt and checkpoint carries; drawn at its first opening."""
    with store.reader() as reader:
        found = reader.document(_META, "log")
    if found is not None:
        return found.body.decode()
    try:
        with store.transaction() as transaction:
            transaction.put_document(
                Document(collection=_META, key="log", version=1, body=f"aegis/log/{new_id()}".encode())
            )
    except StoreConflict:  # another process opened it first: its name is the one
        pass
    return log_name(store)
