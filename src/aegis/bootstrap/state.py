"""The state of a deployment: its store, log and keys, without a policy.

Who stops an agent, makes a key or reads the log needs no policy, and must not put one on the record.

The store is believed as far as it is sealed and continues what this home saw of its log:
(1) a store that nobody ever used is sealed from its first document on
(2) one from before there were seals is sealed as it is found, once, on record
(3) one that the mark of the home contradicts, or whose seal does not hold, is refused, or accepted on record
(4) one that is sealed where the home has no mark is opened, on record
"""

from __future__ import annotations

import base64
import fcntl
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec import Struct

from aegis.bootstrap.home import home_dir
from aegis.bootstrap.introduce import COLLECTION as KEYS
from aegis.bootstrap.introduce import Introductions
from aegis.config.config import Config, load_config, parse_config
from aegis.config.trusted import read_trusted
from aegis.core.canonical import SALT_BYTES, canonical, canonical_record, payload_commitment
from aegis.core.ed25519 import verify
from aegis.core.ports import Document, Head, Reader, Store
from aegis.core.receipt import Draft
from aegis.core.times import system_clock
from aegis.errors import SignatureInvalid, StoreConflict, StoreCorrupt, StoreError
from aegis.gate.events import Event, Listener, new_id, notify
from aegis.gate.repeat import Elsewhere
from aegis.keys.keyring import Ed25519Signer, Keyring
from aegis.log.merkle import Frontier, root_at
from aegis.log.writer import Ledger, Unit
from aegis.store import MemoryStore, open_store
from aegis.store.sealed import SealedStore

# The high-water mark of a home: the longest log that its processes saw, signed, in a file beside the store.
#
# Who writes the store alone cannot put the whole of it back, exchange it for another one or take it away without
# the next opening seeing that. The mark is written every `EVERY` receipts and at the end of a process, and never
# goes back; a process that was killed leaves one that is that much behind.

NAME: Final = "log.mark"
EVERY: Final = 256  # receipts, or changes of documents, that a killed process may leave unmarked
BYTES: Final = 512  # of the file; a mark is some 400 of them
_DOMAIN: Final = b"aegis/high-water-mark/v1\0"

_mark_log = logging.getLogger("aegis.store")


class Mark(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a home knows of its log: its name, size, root (hex), last time, and how often documents had changed."""

    v: Literal[1] = 1
    log: str
    size: int
    root: str
    time: int
    documents: int
    kid: str
    signature: str = ""

    def message(self) -> bytes:
        """What is signed."""
        members = {name: value for name, value in msgspec.structs.asdict(self).items() if name != "signature"}
        return _DOMAIN + canonical_record(members)

    def holds(self, public: bytes) -> bool:
        """Whether the key `public` signed this."""
        try:
            verify(public, bytes.fromhex(self.signature), self.message())
        except (SignatureInvalid, ValueError):
            return False
        return True


class HighWater:
    """The mark in the folder `home`, signed by what `signer` answers at the time."""

    def __init__(self, home: Path, signer: Callable[[], Ed25519Signer]):
        self._home = home
        self._path = home / NAME
        self._signer = signer
        self._size = 0
        self._documents = 0
        self.log = ""

    def read(self) -> Mark | None:
        """The mark as it stands, of which nothing is verified; `None` where there is none.

        Raises `StoreCorrupt` for what is no mark.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreCorrupt(f"the mark of the log cannot be read: {error.strerror}") from error
        if not data:  # a power cut took what was being written
            return None
        try:
            return msgspec.json.decode(data, type=Mark)
        except msgspec.DecodeError as error:
            raise StoreCorrupt("the mark of the log is malformed") from error

    def committed(self, head: Head, documents: int) -> None:
        """Take up the end of the log; writes the mark where it is due."""
        if head.size >= self._size + EVERY or documents >= self._documents + EVERY:
            self.write(head, documents)

    def write(self, head: Head, documents: int, *, anyhow: bool = False) -> None:
        """Write the mark where it is later than what stands there, or `anyhow`; a disk that fails leaves it behind."""
        self._size, self._documents = head.size, documents
        signer = self._signer()
        mark = Mark(
            log=self.log,
            size=head.size,
            root=Frontier.decode(head.frontier).root().hex(),
            time=head.time,
            documents=documents,
            kid=signer.kid,
        )
        mark = msgspec.structs.replace(mark, signature=signer.sign(mark.message()).hex())
        try:
            self._replace(mark, anyhow=anyhow)
        except (OSError, StoreCorrupt) as error:
            _mark_log.warning("the mark of the log was not written", extra={"error": str(error)})

    def _replace(self, mark: Mark, *, anyhow: bool) -> None:
        descriptor = os.open(self._home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if anyhow else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # another process of this home writes one at this moment
                return
            if not anyhow:
                stood = self.read()
                if stood is not None and (stood.size, stood.documents) >= (mark.size, mark.documents):
                    return
            # In place, and one sector: a rename would make the file system flush, and a torn sector is none.
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(file, msgspec.json.encode(mark).ljust(BYTES - 1) + b"\n", 0)
            finally:
                os.close(file)
        finally:
            os.close(descriptor)


def against(mark: Mark, reader: Reader, *, log: str) -> str | None:
    """What of the log behind `reader` contradicts the mark, in words; `None` where nothing does.

    `log` is the name of the store's log, empty where it has none.
    """
    size = reader.head().size
    if not log:
        return f"the log is gone: this home saw one of {mark.size} receipts"
    if log != mark.log:
        return "the log is another one than this home's"
    if size < mark.size:
        return f"the log is older than this home: it has {size} receipts, and had {mark.size}"
    try:
        same = root_at(mark.size, reader).hex() == mark.root
    except StoreCorrupt:  # leaves are missing
        same = False
    if not same:
        return f"the log has another history than this home saw up to receipt {mark.size}"
    return None


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
    log: str
    store: Store
    keyring: Keyring
    ledger: Ledger
    elsewhere: Elsewhere
    introductions: Introductions
    listeners: list[Listener] = field(default_factory=list)
    mark: HighWater | None = None

    def close(self) -> None:
        """Mark how far the log came, and release the store."""
        if self.mark is not None and isinstance(self.store, SealedStore):
            _write_mark(self.mark, self.store)
        self.store.close()


def open_state(config: Path | None = None, home: Path | None = None, *, accept_rollback: str | None = None) -> State:
    """Open the state in `home`, with the store that the configuration `config` names.

    The deployment's own keys are known to the log when this returns. Raises `ConfigError`,
    `KeyFileError` or `StoreError`; `StoreCorrupt` where the store does not continue what this home saw, unless
    `accept_rollback` says why that is right. The reason is recorded.
    """
    place = home_dir(home)
    path = config_file(config, place)
    settings = load_config() if path is None else parse_config(read_trusted(path), file=str(path))
    keyring = Keyring(place / "keys")
    inner = open_store(settings.settings.store, home=place, durability=settings.settings.durability)
    try:
        return _opened(place, settings, path, keyring, inner, accept_rollback)
    except BaseException:
        inner.close()
        raise


def _opened(
    place: Path, settings: Config, path: Path | None, keyring: Keyring, inner: Store, accept_rollback: str | None
) -> State:
    store, mark, record = inner, None, None
    if not isinstance(inner, MemoryStore):
        store = sealed = SealedStore(inner, keyring.document_key())
        mark = HighWater(place, keyring.log_signer)
        record = _judge(sealed, mark, keyring, accept_rollback)
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
    if record is not None:
        ledger.append(Unit(drafts=(record,)))
    state = State(
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
    """What in the store contradicts the mark of the home; raises `StoreCorrupt` where the seal does not hold."""
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
    """A key that signed for the log before the present one."""
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
    """What is put on record of a store that was not simply believed; `said` stands in its payload."""
    members: dict[str, Any] = {"kind": "alarm", "receipt_id": new_id(), "principal": "gate", "action": action}
    if said is None:
        return Draft(members=members)
    salt, payload = os.urandom(SALT_BYTES), canonical(said)
    return Draft(
        members=members | {"payload_commitment": payload_commitment(salt, payload)}, payload=payload, salt=salt
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
    """Whether everything in the store was made by the demonstration."""
    with store.reader() as reader:
        return reader.document(_META, _DEMONSTRATION) is not None
