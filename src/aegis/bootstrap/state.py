"""The state of a deployment: its store, log and keys, without a policy.

Who stops an agent, makes a key or reads the log needs no policy, and must not put one on the record.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from aegis.audit.writer import Ledger
from aegis.bootstrap.home import home_dir
from aegis.bootstrap.introduce import Introductions
from aegis.core.ports import Document, Store
from aegis.core.times import system_clock
from aegis.errors import StoreConflict
from aegis.gate.elsewhere import Elsewhere
from aegis.gate.events import Event, Listener, notify
from aegis.gate.ids import new_id
from aegis.keys.keyring import Keyring
from aegis.pipeline.config import Config, load_config, parse_config
from aegis.pipeline.trusted import read_trusted
from aegis.stores import open_store

CONFIG_NAME: Final = "aegis.yaml"
_META: Final = "meta"
_DEMONSTRATION: Final = "demonstration"


@dataclass(frozen=True, kw_only=True)
class State:
    """A home opened: its configuration read but not compiled, its store, log and keys ready."""

    home: Path
    config: Config
    config_path: Path | None
    log: str
    store: Store
    keyring: Keyring
    ledger: Ledger
    elsewhere: Elsewhere
    introductions: Introductions
    listeners: list[Listener] = field(default_factory=list)

    def close(self) -> None:
        """Release the store."""
        self.store.close()


def open_state(config: Path | None = None, home: Path | None = None) -> State:
    """Open the state in `home`, with the store that the configuration `config` names.

    The deployment's own keys are known to the log when this returns. Raises `ConfigError`,
    `KeyFileError` or `StoreError`.
    """
    place = home_dir(home)
    path = config_file(config, place)
    settings = load_config() if path is None else parse_config(read_trusted(path), file=str(path))
    keyring = Keyring(place / "keys")
    store = open_store(settings.settings.store, home=place, durability=settings.settings.durability)
    listeners: list[Listener] = []
    log = log_name(store)
    elsewhere = Elsewhere(store)
    ledger = Ledger(
        store=store,
        log=log,
        signer_for=keyring.signer_for,
        seal=keyring.seal,
        clock=system_clock,
        on_clock_behind=lambda behind: notify(
            listeners, Event(kind="clock", members={"behind_us": behind}, recorded=None)
        ),
        on_epoch=keyring.forget,
        on_others=elsewhere.written,
    )
    introductions = Introductions(store=store, ledger=ledger, keyring=keyring)
    if keyring.is_replacing:
        introductions.settle()
    for signer in (keyring.log_signer(), keyring.receipt_signer(), keyring.permit_signer()):
        introductions.key(signer)
    return State(
        home=place,
        config=settings,
        config_path=path,
        log=log,
        store=store,
        keyring=keyring,
        ledger=ledger,
        elsewhere=elsewhere,
        introductions=introductions,
        listeners=listeners,
    )


def config_file(config: Path | None, home: Path) -> Path | None:
    """The configuration to load: the one given, `AEGIS_CONFIG`, or `aegis.yaml` in the home; never elsewhere."""
    if config is not None:
        return config
    named = os.environ.get("AEGIS_CONFIG")
    if named:
        return Path(named).expanduser()
    own = home / CONFIG_NAME
    return own if own.exists() else None


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


def mark_demonstration(store: Store) -> None:
    """Note in a new store that everything in it was made by the demonstration; there is no way back."""
    with store.transaction() as transaction:
        transaction.put_document(Document(collection=_META, key=_DEMONSTRATION, version=1, body=b""))


def is_demonstration(store: Store) -> bool:
    """Whether everything in the store was made by the demonstration."""
    with store.reader() as reader:
        return reader.document(_META, _DEMONSTRATION) is not None
