"""The state of a deployment: its home, store, log and keys, without a policy.

Who stops an agent, makes a key or reads the log needs no policy, and must not put one on the record.

The store is believed as far as it is sealed and continues what this home saw of its log:
(1) a store that nobody ever used is sealed from its first document on
(2) one from before there were seals is sealed as it is found, once, on record
(3) one that the mark of the home contradicts, or whose seal does not hold, is refused, or accepted on record
(4) one that is sealed where the home has no mark is opened, on record
"""

from __future__ import annotations

import base64
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from aegis.bootstrap.introduce import COLLECTION as KEYS
from aegis.bootstrap.introduce import Introductions
from aegis.bootstrap.mark import HighWater, Mark, against
from aegis.config.config import Config, load_config, parse_config
from aegis.config.trusted import read_trusted
from aegis.core.canonical import SALT_BYTES, canonical, payload_commitment
from aegis.core.ports import Document, Reader, Store
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.errors import ConfigError, Problem, StoreConflict, StoreCorrupt, StoreError
from aegis.gate.events import About, Event, Listener, new_id, notify
from aegis.gate.repeat import Elsewhere
from aegis.keys.keyring import Keyring
from aegis.log.writer import Ledger, Unit
from aegis.store import MemoryStore, open_store
from aegis.store.sealed import SealedStore
from aegis.store.shared import Books

# Where a deployment keeps its state: a directory that nobody else may enter.


def home_dir(home: Path | None = None) -> Path:
    """Find the home to use: the one given, `AEGIS_HOME`, or `~/.aegis`; made with mode 0700 where it is missing.

    Raises `ConfigError` where it is not a directory that only its owner may enter.
    """
    path = home or Path(os.environ.get("AEGIS_HOME") or Path.home() / ".aegis")
    path = path.expanduser().resolve()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError((Problem(message=f"the home cannot be used: {error.strerror}", file=str(path)),)) from error
    if mode & 0o022:
        raise ConfigError(
            (
                Problem(
                    message="the home can be written by others",
                    file=str(path),
                    hint=f"chmod 700 {path}",
                ),
            )
        )
    return path


CONFIG_NAME: Final = "aegis.yaml"
_log = logging.getLogger("aegis.store")
_META: Final = "meta"
_LOG: Final = "log"
_DEMONSTRATION: Final = "demonstration"
_HINT: Final = (
    "restore the store that belongs to this home; or, where it is known why, start once with"
    " `--accept-rollback REASON`, which is recorded"
)


@dataclass(frozen=True, kw_only=True)
class State:
    """A home opened: its configuration read but not compiled, its store, log and keys ready."""

    home: Path
    config: Config
    config_path: Path | None
    text: str | None
    log: str
    store: Store
    keyring: Keyring
    ledger: Ledger
    elsewhere: Elsewhere
    introductions: Introductions
    listeners: list[Listener | About] = field(default_factory=list)
    mark: HighWater | None = None

    def close(self) -> None:
        """Mark how far the log came, and release the store."""
        if self.mark is not None and isinstance(self.store, SealedStore):
            _write_mark(self.mark, self.store)
        self.store.close()


def open_state(
    config: Path | None = None,
    home: Path | None = None,
    *,
    accept_rollback: str | None = None,
    text: str | None = None,
    books: Books | None = None,
) -> State:
    """Open the state in `home`, with the store that the configuration `config` names; `text` stands for its file.

    The deployment's own keys are known to the log when this returns. Raises `ConfigError`,
    `KeyFileError` or `StoreError`; `StoreCorrupt` where the store does not continue what this home saw, unless
    `accept_rollback` says why that is right. The reason is recorded.
    """
    place = home_dir(home)
    path = config_file(config, place)
    if text is None and path is not None:
        text = read_trusted(path)
    settings = load_config() if text is None else parse_config(text, file="aegis.yaml" if path is None else str(path))
    keyring = Keyring(place / "keys")
    inner = open_store(settings.settings.store, home=place, durability=settings.settings.durability)
    try:
        return _opened(place, settings, path, text, keyring, inner, accept_rollback, books)
    except BaseException:
        inner.close()
        raise


def _opened(
    place: Path,
    settings: Config,
    path: Path | None,
    text: str | None,
    keyring: Keyring,
    inner: Store,
    accept_rollback: str | None,
    books: Books | None,
) -> State:
    store, mark, record = inner, None, None
    if not isinstance(inner, MemoryStore):
        store = sealed = SealedStore(inner, keyring.document_key())
        mark = HighWater(place, keyring.log_signer)
        record = _judge(sealed, mark, keyring, accept_rollback)
    listeners: list[Listener | About] = []
    log = log_name(store)
    elsewhere = Elsewhere(store, None if books is None else books.leaves)
    ledger = Ledger(
        store=store,
        log=log,
        signer_for=keyring.signer_for,
        seal=keyring.payload_box().seal,
        clock=system_clock,
        on_clock_behind=lambda behind: notify(
            listeners, Event(kind="clock", members={"behind_us": behind}, recorded=None)
        ),
        on_epoch=keyring.forget,
        on_others=elsewhere.written,
        on_own=None if books is None else elsewhere.wrote,
    )
    introductions = Introductions(store=store, ledger=ledger, keyring=keyring)
    if keyring.is_replacing:
        introductions.settle()
    for signer in (keyring.log_signer(), keyring.receipt_signer(), keyring.permit_signer()):
        introductions.key(signer)
    if record is not None:
        ledger.append(Unit(drafts=(record,)))
    state = State(
        home=place,
        config=settings,
        config_path=path,
        text=text,
        log=log,
        store=store,
        keyring=keyring,
        ledger=ledger,
        elsewhere=elsewhere,
        introductions=introductions,
        listeners=listeners,
        mark=mark,
    )
    if mark is not None and isinstance(store, SealedStore):
        store.adopts = "nothing"
        mark.log = log
        _write_mark(mark, store, anyhow=accept_rollback is not None)
        store.committed = mark.committed
    return state


def _judge(store: SealedStore, mark: HighWater, keyring: Keyring, accept_rollback: str | None) -> Draft | None:
    """Decide whether the store is believed, and what of this goes on record; raises `StoreCorrupt` where it is not."""
    kept, wrong = None, None
    accept_rollback = (accept_rollback or "").strip()
    try:
        kept = mark.read()
        with store.inner.reader() as reader:
            head = reader.head()
            fresh = not head.size and not reader.collections()
        if kept is None and not head.seal:
            store.adopts = "unsealed"
            return None if fresh else _alarm("documents_adopted")  # (1), (2)
        if kept is not None:
            wrong = contradicted(store, kept, keyring)
        else:
            store.checked(head, 0)
        if wrong is None and accept_rollback:
            wrong = next((str(one) for one in store.defects()), None)
    except StoreCorrupt as error:
        wrong = str(error)
    if wrong is None:
        return _alarm("mark_missing") if kept is None else None  # (4)
    if not accept_rollback:  # (3)
        raise StoreCorrupt(f"{wrong}; {_HINT}")
    store.adopts = "everything"
    if kept is not None:
        store.changes = max(store.changes, kept.documents)
    return _alarm("rollback_accepted", {"reason": accept_rollback, "found": wrong})


def contradicted(store: SealedStore, mark: Mark, keyring: Keyring) -> str | None:
    """Tell what in the store contradicts the mark of the home; raises `StoreCorrupt` where the seal does not hold."""
    with store.inner.reader() as raw:
        named = raw.document(_META, _LOG)
        wrong = against(mark, raw, log="" if named is None else named.body.decode())
    if wrong is not None:
        return wrong
    with store.reader() as reader:
        reader.document(_META, _LOG)
        if store.changes < mark.documents:
            return "the documents in the store are older than this home saw them"
        public = keyring.log_signer().public if mark.kid == keyring.log_signer().kid else _announced(reader, mark.kid)
    return None if public is not None and mark.holds(public) else "the mark of the log is not signed by its key"


def _announced(reader: Reader, kid: str) -> bytes | None:
    """Find a key that signed for the log before the present one."""
    document = reader.document(KEYS, kid)
    described = {} if document is None else orjson.loads(document.body)
    return base64.b64decode(described["public"]) if described.get("purpose") == "log" else None


def _write_mark(mark: HighWater, store: SealedStore, *, anyhow: bool = False) -> None:
    try:
        with store.reader() as reader:
            head = reader.head()
            documents = store.checked(head, 0).changes
    except StoreError as error:
        _log.warning("the end of the log cannot be marked", extra={"error": str(error)})
        return
    mark.write(head, documents, anyhow=anyhow)


def _alarm(action: str, said: dict[str, str] | None = None) -> Draft:
    """Draft what is put on record of a store that was not simply believed; `said` stands in its payload."""
    members: dict[str, Any] = {"kind": "alarm", "receipt_id": new_id(), "principal": "gate", "action": action}
    if said is None:
        return Draft(members=members)
    salt, payload = os.urandom(SALT_BYTES), canonical(said)
    return Draft(
        members=members | {"payload_commitment": payload_commitment(salt, payload)}, payload=payload, salt=salt
    )


def config_file(config: Path | None, home: Path) -> Path | None:
    """Find the configuration to load: the one given, `AEGIS_CONFIG`, or `aegis.yaml` in the home; never elsewhere."""
    if config is not None:
        return config
    named = os.environ.get("AEGIS_CONFIG")
    if named:
        return Path(named).expanduser()
    own = home / CONFIG_NAME
    return own if own.exists() else None


def log_name(store: Store) -> str:
    """Find the name of this store's log, which every receipt and checkpoint carries; drawn at its first opening."""
    with store.reader() as reader:
        found = reader.document(_META, _LOG)
    if found is not None:
        return found.body.decode()
    try:
        with store.transaction() as transaction:
            transaction.put_document(
                Document(collection=_META, key=_LOG, version=1, body=f"aegis/log/{new_id()}".encode())
            )
    except StoreConflict:  # another process opened it first: its name is the one
        pass
    return log_name(store)


def mark_demonstration(store: Store) -> None:
    """Note in a new store that everything in it was made by the demonstration; there is no way back."""
    with store.transaction() as transaction:
        transaction.put_document(Document(collection=_META, key=_DEMONSTRATION, version=1, body=b""))


def is_demonstration(store: Store) -> bool:
    """Tell whether everything in the store was made by the demonstration."""
    with store.reader() as reader:
        return reader.document(_META, _DEMONSTRATION) is not None
