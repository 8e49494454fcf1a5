"""Verifying an export in a folder, large ones on every core, or a home where it lies; and the files of an export."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from msgspec import structs

from aegis.bootstrap.mark import HighWater
from aegis.bootstrap.state import contradicted
from aegis.cli.output import counted
from aegis.core.breaks import Break
from aegis.core.canonical import payload_commitment
from aegis.core.ports import Entry, Reader, Search
from aegis.core.times import from_rfc3339
from aegis.errors import InvalidCall, LogInvalid, StoreCorrupt
from aegis.keys.keyring import Keyring
from aegis.log.append import entry_of
from aegis.log.checkpoint import checkpoint_of, sign_checkpoint
from aegis.log.export import CHECKPOINT, PAYLOADS, RECEIPTS, Payloads, read_payloads
from aegis.log.merkle import leaf_hash
from aegis.log.records import IdSet
from aegis.log.trust import public_keys
from aegis.log.verify import NOT_COVERED_PAYLOADS, verify_export
from aegis.missions.verify import NOT_CHECKED_SCOPE, OfflineMissionRules, ScopeRules, read_issuers
from aegis.store import MemoryStore, open_store
from aegis.store.sealed import SealedStore

if TYPE_CHECKING:
    from aegis.log.verify import Verified


# The files of an export: written beside their place and put there whole, read in blocks.

BLOCK_BYTES: Final = 1_048_576
MAX_SMALL: Final = 67_108_864  # a checkpoint or keys.json beyond this is none


def write_file(folder: Path, name: str, blocks: Iterable[bytes], *, mode: int = 0o666) -> None:
    """Write `blocks` durably as `name`; nobody ever sees half of it."""
    fresh = folder / f".{name}.new"
    try:
        fresh.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(folder / name)
    finally:
        fresh.unlink(missing_ok=True)


def read_blocks(path: Path) -> Iterator[bytes]:
    """The content of `path` in blocks, in bounded memory."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def read_small(path: Path) -> bytes:
    """The content of a small file, bounded."""
    with path.open("rb") as file:
        return file.read(MAX_SMALL)


# What is stored in a home, verified where it lies: what an export does not hold, and what stands beside the log.
#
# (1) the store continues what the home's mark says that it saw
# (2) every document is what was put last, and none is missing
# (3) the columns by which receipts are found say what the receipts say, and lead to them
# (4) payloads are those that the receipts commit to; what is gone was erased on record

_PAGE: Final = 1_000
Open = Callable[[bytes, bytes], bytes]


def mark_break(store: SealedStore, mark: HighWater, keyring: Keyring) -> Break | None:
    """(1) What in the store contradicts the home's mark; `None` where nothing does, or there is none."""
    try:
        kept = mark.read()
        wrong = None if kept is None else contradicted(store, kept, keyring)
    except StoreCorrupt as error:
        wrong = str(error)
    return None if wrong is None else Break(kind="rolled_back", detail=wrong)


def document_breaks(store: SealedStore) -> Iterator[Break]:
    """(2) Every document that somebody else wrote, changed, took away or put back."""
    try:
        for defect in store.defects():
            yield Break(kind="document_changed", detail=str(defect))
    except StoreCorrupt as error:
        yield Break(kind="document_changed", detail=str(error))


def column_breaks(reader: Reader, start: int, stop: int, *, looked_up: bool) -> Iterator[Break]:
    """(3) Every receipt from `start` to before `stop` whose columns differ from it, or do not lead to it.

    `looked_up` says that each is searched for as well, which takes a few queries.
    """
    for entry in reader.entries(start, stop):
        wrong = _differing(entry) or (_not_found(reader, entry) if looked_up else "")
        if wrong:
            yield Break(kind="column_changed", detail=wrong, index=entry.index, receipt_id=entry.receipt_id)


def payload_breaks(reader: Reader, size: int, open_payload: Open) -> Iterator[Break]:
    """(4) Every receipt whose payload is another one, or is gone and was not erased on record."""
    erased = IdSet()
    before: int | None = None
    while page := reader.search(Search(kind="erasure", before=before, limit=_PAGE)):
        for entry in page:
            erased.add(entry.parent)
        before = page[-1].index
    for entry in reader.entries(0, size):
        commitment = _commitment(entry)
        if commitment is None:
            continue
        stored = reader.payload(entry.index)
        if stored is None:
            wrong = "" if entry.receipt_id in erased else "it is gone, and nobody erased it on record"
        else:
            try:
                text = open_payload(stored.key, stored.body)
                wrong = "" if payload_commitment(stored.salt, text) == commitment else "it is another one"
            except StoreCorrupt:
                wrong = "it does not open"
        if wrong:
            yield Break(kind="payload_changed", detail=wrong, index=entry.index, receipt_id=entry.receipt_id)


def _commitment(entry: Entry) -> str | None:
    try:
        commitment: str | None = orjson.loads(entry.body).get("payload_commitment")
    except (ValueError, AttributeError):  # the receipt is malformed, which its own check says
        return None
    return commitment


def _differing(entry: Entry) -> str:
    """The columns of a receipt that say something else than it does."""
    try:
        body: dict[str, Any] = orjson.loads(entry.body)
        told = entry_of(body, entry.body, leaf_hash(entry.body), from_rfc3339(body["time"]))
    except (ValueError, KeyError, TypeError):
        return "the receipt is malformed"
    return ", ".join(f"`{name}`" for name in Entry.__struct_fields__ if getattr(entry, name) != getattr(told, name))


def _not_found(reader: Reader, entry: Entry) -> str:
    """The way in which a receipt is looked for and not found."""
    by_id = reader.entry_by_id(entry.receipt_id)
    if by_id is None or by_id.index != entry.index:
        return "it is not found by `receipt_id`"
    if entry.kind == "decision" and entry.call_id:
        latest = reader.latest_call(entry.principal, entry.session, entry.call_id)
        if latest is None or latest < entry.index:
            return "it is not found by its call"
    search = Search(
        kind=entry.kind,
        principal=entry.principal,
        agent=entry.agent,
        session=entry.session,
        call_id=entry.call_id,
        tool=entry.tool,
        decision=entry.decision,
        reason=entry.reason,
        parent=entry.parent,
        before=entry.index + 1,
        limit=1,
    )
    found = reader.search(search)
    return "" if found and found[0].index == entry.index else "it is not found by what it says"


MAX_BREAKS: Final = 1_000  # named of what is wrong in a home: more says no more
LARGE_BYTES: Final = 16_777_216  # about 20,000 receipts: below, starting processes costs more than it saves
_RECEIPT_BYTES: Final = 800  # what one takes on average: sizes the progress bar


def verify_folder(
    folder: Path, *, key: Path, since: Path | None = None, payloads: bool = False, issuers: Sequence[Path] = ()
) -> Verified:
    """What `verify_export` says about the export in `folder`, with keys and checkpoint from elsewhere.

    `payloads` says that the payloads in the folder are checked too; `issuers` are JWK sets of other issuers
    of missions. Raises `LogInvalid`, and `OSError` where a file cannot be read.
    """
    keys = read_small(key)
    kept = None if since is None else read_small(since)
    trusted = {kid: public for file in issuers for kid, public in read_issuers(read_small(file)).items()}
    if payloads and not (folder / PAYLOADS).is_file():
        raise InvalidCall(f"there is no `{PAYLOADS}` in the export", hint="`aegis log export --payloads` writes it")
    for name in (CHECKPOINT, RECEIPTS):
        if not (folder / name).is_file():
            raise LogInvalid(Break(kind="tail_cut", detail=f"`{name}` is missing"))
    size = (folder / RECEIPTS).stat().st_size
    with _processes(size) as executor, counted(size // _RECEIPT_BYTES, title="verifying") as progress:
        missions = OfflineMissionRules(trusted)
        scope = ScopeRules(missions, Payloads(read_payloads(folder / PAYLOADS))) if payloads else None
        verified = verify_export(
            read_blocks(folder / RECEIPTS),
            checkpoint=read_small(folder / CHECKPOINT),
            keys=keys,
            since=kept,
            rules=(missions,) if scope is None else (missions, scope),
            executor=executor,
            progress=progress,
        )
    not_covered = [one for one in verified.not_covered if scope is None or one != NOT_COVERED_PAYLOADS]
    not_covered.extend(missions.not_checked)
    if missions.not_checked:
        not_covered.extend((NOT_CHECKED_SCOPE,) if scope is None else scope.not_checked)
    return structs.replace(verified, not_covered=tuple(not_covered))


def verify_home(
    home: Path,
    config: Path | None,
    *,
    key: Path | None = None,
    since: Path | None = None,
    issuers: Sequence[Path] = (),
) -> tuple[Verified | None, list[Break]]:
    """What the log in `home` verifies as, and everything that is wrong with what is stored there.

    Without `key` the log's keys are those that it announces itself, as far as the home's own key follows from them.
    Nothing is changed. Raises `InvalidCall`, `ConfigError` and `StoreError` where the home cannot be read.
    """
    from aegis.bootstrap.state import config_file
    from aegis.config.config import load_config

    settings = load_config(config_file(config, home)).settings
    keyring = Keyring(home / "keys")
    inner = open_store(settings.store, home=home, durability=settings.durability)
    try:
        if isinstance(inner, MemoryStore):
            raise InvalidCall("a log in memory ends with its process", hint="`store` names a file or a database")
        store = SealedStore(inner, keyring.document_key())
        with inner.reader() as reader, counted(reader.head().size, title="verifying") as progress:
            verified, broken = verify_log(reader, keyring, key, since, issuers, progress)
            size = reader.head().size
            stored = chain(
                filter(None, [mark_break(store, HighWater(home, keyring.log_signer), keyring)]),
                document_breaks(store),
                column_breaks(reader, 0, size, looked_up=True),
                payload_breaks(reader, size, keyring.open_payload),
            )
            return verified, [*broken, *islice(stored, MAX_BREAKS)]
    finally:
        inner.close()


def verify_log(
    reader: Reader,
    keyring: Keyring,
    key: Path | None = None,
    since: Path | None = None,
    issuers: Sequence[Path] = (),
    progress: Callable[[int], None] | None = None,
) -> tuple[Verified | None, list[Break]]:
    """The log as an export of it would verify, or `None` and what is wrong with it."""
    announced = public_keys(reader)
    own = keyring.log_signer()
    if not any(one["kid"] == own.kid and "until" not in one for one in announced["keys"]):
        return None, [Break(kind="unknown_key", detail="the log does not name this home's key as its own")]
    trusted = {kid: public for file in issuers for kid, public in read_issuers(read_small(file)).items()}
    head = reader.head()
    try:
        verified = verify_export(
            (entry.body + b"\n" for entry in reader.entries(0, head.size)),
            checkpoint=sign_checkpoint(checkpoint_of(head, announced["log"]), own),
            keys=orjson.dumps(announced) if key is None else read_small(key),
            since=None if since is None else read_small(since),
            rules=(OfflineMissionRules(trusted),),
            progress=progress,
        )
    except LogInvalid as error:
        return None, [error.broken]
    return structs.replace(
        verified, not_covered=tuple(one for one in verified.not_covered if one != NOT_COVERED_PAYLOADS)
    ), []


def _processes(size: int) -> AbstractContextManager[Executor | None]:
    cores = os.cpu_count() or 1
    if size < LARGE_BYTES or cores < 2:
        return nullcontext(None)
    return ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
