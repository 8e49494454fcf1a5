"""Introducing keys to the log: nobody signs before the log key has endorsed the key.

Every public key enters the log as a `key` receipt signed by the log key, and stands in the store as
a document so that each process asks only once.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import orjson

from aegis.config.check import given_keys
from aegis.config.config import Config
from aegis.core.ports import Document, Store, Transaction
from aegis.core.receipt import LOG_SIGNER, PREVIOUS_LOG_SIGNER, Draft
from aegis.errors import ConfigError
from aegis.gate.events import new_id
from aegis.keys.keyring import Ed25519Signer, Keyring, public_below
from aegis.log.writer import Ledger, Unit
from aegis.missions.holder import holder_folder

COLLECTION: Final = "keys"

Action = Literal["add", "rotate"]


class Introductions:
    """Makes sure that the log knows a key before anything is signed with it."""

    def __init__(self, *, store: Store, ledger: Ledger, keyring: Keyring):
        self._store = store
        self._ledger = ledger
        self._keyring = keyring
        self._lock = threading.Lock()

    def agent(self, name: str) -> None:
        """Introduce the receipt key of the agent `name`; raises `StoreUnavailable` where that cannot be recorded."""
        self.key(self._keyring.receipt_signer(name))

    def missions(self) -> None:
        """Introduce the keys that sign missions and attestations, at their first use."""
        self.key(self._keyring.mission_signer())
        self.key(self._keyring.attestation_signer())

    def key(self, signer: Ed25519Signer) -> None:
        """Introduce one key; does nothing where the log knows it."""
        with self._lock:
            with self._store.reader() as reader:
                if reader.document(COLLECTION, signer.kid) is not None:
                    return
            self._ledger.append(endorse(signer, "add"))

    def rotate(self, purpose: Literal["log", "receipt", "permit"], agent: str = "") -> Ed25519Signer:
        """Replace a key by a new one, endorsed as its successor before it signs anything.

        The file changes while this process alone may write to the log, and the control epoch moves with
        it: every other process reads its keys again before it appends. A process that dies on the way
        leaves the old key aside, and the next opening puts back what the log does not know.
        """

        def apply(transaction: Transaction) -> Sequence[Draft]:
            signer = self._keyring.rotate(purpose, agent)
            drafts = _endorsed(
                transaction, signer, "rotate", by=PREVIOUS_LOG_SIGNER if purpose == "log" else LOG_SIGNER
            )
            transaction.bump_epoch()
            return drafts

        try:
            self._ledger.append(Unit(apply=apply))
        finally:
            self.settle()
        if purpose == "log":
            return self._keyring.log_signer()
        return self._keyring.permit_signer() if purpose == "permit" else self._keyring.receipt_signer(agent)

    def settle(self) -> None:
        """End replacements of keys that were begun here, or by a process that died.

        The store is held meanwhile: nobody replaces a key, and what is recorded is what counts.
        """
        with self._store.transaction() as transaction:
            self._keyring.settle(lambda kid: transaction.document(COLLECTION, kid) is not None)


def check_foreign(config: Config, home: Path, store: Store) -> None:
    """Guarantee that no key of somebody else in a configuration is one of this deployment's own, used or retired.

    The log knows every key that was ever introduced; files hold those that were not yet, and those of holders. Raises
    `ConfigError`.
    """
    given = list(given_keys(config.settings))
    if not given:
        return
    own = {**public_below(home / "keys"), **public_below(holder_folder(home))}
    with store.reader() as reader:
        after = ""
        while page := reader.documents(COLLECTION, after=after):
            for described in map(orjson.loads, (document.body for document in page)):
                own.setdefault(base64.b64decode(described["public"]), f"the {described['purpose']} key")
            after = page[-1].key
    hint = "one key, one purpose: whoever is named here needs a key that was made there"
    problems = tuple(
        config.problem(place, f"this is a key of the deployment itself: {own[key]}", hint)
        for place, key in given
        if key in own
    )
    if problems:
        raise ConfigError(problems)


def endorse(signer: Ed25519Signer, action: Action) -> Unit:
    """Make the unit that brings a public key into the log; it adds nothing where the key is there already."""
    return Unit(apply=lambda transaction: _endorsed(transaction, signer, action))


def _endorsed(
    transaction: Transaction, signer: Ed25519Signer, action: Action, *, by: str = LOG_SIGNER
) -> Sequence[Draft]:
    if transaction.document(COLLECTION, signer.kid) is not None:
        return ()
    described: dict[str, Any] = dict(signer.describe())
    transaction.put_document(
        Document(collection=COLLECTION, key=signer.kid, version=1, state="current", body=orjson.dumps(described))
    )
    members: dict[str, Any] = {
        "kind": "key",
        "receipt_id": new_id(),
        "principal": "gate",
        "action": action,
        "key": described,
    }
    return (Draft(members=members, signer=by),)
