"""Verifying an export in a folder, large ones on every core, or a home where it lies."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, islice
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from aegis.audit.breaks import Break
from aegis.audit.checkpoint import checkpoint_of, sign_checkpoint
from aegis.audit.export import CHECKPOINT, RECEIPTS
from aegis.audit.verify import NOT_COVERED_PAYLOADS, verify_export
from aegis.bootstrap.mark import HighWater
from aegis.cli.logfiles import read_blocks, read_small
from aegis.cli.progress import counted
from aegis.errors import InvalidCall, LogInvalid
from aegis.keys.keyring import Keyring
from aegis.keys.public import public_keys
from aegis.stores import MemoryStore, open_store
from aegis.stores.sealed import SealedStore
from aegis.verification.home import column_breaks, document_breaks, mark_break, payload_breaks
from aegis.verification.issuers import read_issuers
from aegis.verification.missions import NOT_CHECKED_SCOPE, MissionRules
from aegis.verification.payloads import PAYLOADS, Payloads, read_payloads
from aegis.verification.scope import ScopeRules

if TYPE_CHECKING:
    from aegis.audit.verify import Verified
    from aegis.core.ports import Reader

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
        missions = MissionRules(trusted)
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
    return replace(verified, not_covered=tuple(not_covered))


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
    from aegis.pipeline.config import load_config

    settings = load_config(config_file(config, home)).settings
    keyring = Keyring(home / "keys")
    inner = open_store(settings.store, home=home, durability=settings.durability)
    try:
        if isinstance(inner, MemoryStore):
            raise InvalidCall("a log in memory ends with its process", hint="`store` names a file or a database")
        store = SealedStore(inner, keyring.document_key())
        with inner.reader() as reader, counted(reader.head().size, title="verifying") as progress:
            verified, broken = _verified(reader, keyring, key, since, issuers, progress)
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


def _verified(
    reader: Reader,
    keyring: Keyring,
    key: Path | None,
    since: Path | None,
    issuers: Sequence[Path],
    progress: Callable[[int], None] | None,
) -> tuple[Verified | None, list[Break]]:
    """The log as an export of it would verify."""
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
            rules=(MissionRules(trusted),),
            progress=progress,
        )
    except LogInvalid as error:
        return None, [error.broken]
    return replace(verified, not_covered=tuple(one for one in verified.not_covered if one != NOT_COVERED_PAYLOADS)), []


def _processes(size: int) -> AbstractContextManager[Executor | None]:
    cores = os.cpu_count() or 1
    if size < LARGE_BYTES or cores < 2:
        return nullcontext(None)
    return ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
