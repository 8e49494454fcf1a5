"""Verifying an export in a folder; large ones on every core."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aegis.audit.breaks import Break
from aegis.audit.export import CHECKPOINT, RECEIPTS
from aegis.audit.verify import NOT_COVERED_PAYLOADS, verify_export
from aegis.cli.logfiles import read_blocks, read_small
from aegis.cli.progress import counted
from aegis.errors import InvalidCall, LogInvalid
from aegis.verification.issuers import read_issuers
from aegis.verification.missions import NOT_CHECKED_SCOPE, MissionRules
from aegis.verification.payloads import PAYLOADS, Payloads, read_payloads
from aegis.verification.scope import ScopeRules

if TYPE_CHECKING:
    from aegis.audit.verify import Verified

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


def _processes(size: int) -> AbstractContextManager[Executor | None]:
    cores = os.cpu_count() or 1
    if size < LARGE_BYTES or cores < 2:
        return nullcontext(None)
    return ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
