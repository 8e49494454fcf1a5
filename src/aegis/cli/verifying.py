"""Verifying an export in a folder; large ones on every core."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aegis.audit.breaks import Break
from aegis.audit.export import CHECKPOINT, RECEIPTS
from aegis.audit.verify import verify_export
from aegis.cli.logfiles import read_blocks, read_small
from aegis.cli.progress import counted
from aegis.errors import LogInvalid
from aegis.verification.missions import MissionRules

if TYPE_CHECKING:
    from aegis.audit.verify import Verified

LARGE_BYTES: Final = 16_777_216  # about 20,000 receipts: below, starting processes costs more than it saves
_RECEIPT_BYTES: Final = 800  # what one takes on average: sizes the progress bar


def verify_folder(folder: Path, *, key: Path, since: Path | None = None) -> Verified:
    """What `verify_export` says about the export in `folder`, with keys and checkpoint from elsewhere.

    Raises `LogInvalid`, and `OSError` where `key` or `since` cannot be read.
    """
    keys = read_small(key)
    kept = None if since is None else read_small(since)
    for name in (CHECKPOINT, RECEIPTS):
        if not (folder / name).is_file():
            raise LogInvalid(Break(kind="tail_cut", detail=f"`{name}` is missing"))
    size = (folder / RECEIPTS).stat().st_size
    with _processes(size) as executor, counted(size // _RECEIPT_BYTES, title="verifying") as progress:
        missions = MissionRules()
        verified = verify_export(
            read_blocks(folder / RECEIPTS),
            checkpoint=read_small(folder / CHECKPOINT),
            keys=keys,
            since=kept,
            rules=(missions,),
            executor=executor,
            progress=progress,
        )
    return replace(verified, not_covered=(*verified.not_covered, *missions.not_checked))


def _processes(size: int) -> AbstractContextManager[Executor | None]:
    cores = os.cpu_count() or 1
    if size < LARGE_BYTES or cores < 2:
        return nullcontext(None)
    return ProcessPoolExecutor(cores, mp_context=get_context("spawn"))
