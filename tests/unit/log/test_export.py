"""An export holds what a verifier needs, and is not finished where the store does not add up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import orjson
import pytest

from aegis.core.ports import Head, Signer, Store
from aegis.core.receipt import GATEWAY_SIGNER, LOG_SIGNER, Draft
from aegis.errors import StoreCorrupt
from aegis.log.export import Exported, export_log
from aegis.log.trust import public_keys
from aegis.log.verify import Verified, verify_export
from aegis.log.writer import Ledger, Unit
from aegis.store import MemoryStore
from aegis.store.sqlite.memory import MemoryReader
from aegis.store.sqlite.reader import SqliteReader
from support.log_exports import GATE_KEY, LOG, LOG_KEY, keys_file

KEYS: dict[str, Signer] = {LOG_SIGNER: LOG_KEY, GATEWAY_SIGNER: GATE_KEY}


def write_log(store: Store, drafts: Iterable[Draft]) -> None:
    ledger = Ledger(
        store=store,
        log=LOG,
        signer_for=KEYS.__getitem__,
        seal=lambda payload: (b"key", payload),
        clock=lambda: 1_800_000_000_000_000,
    )
    ledger.commit([Unit(drafts=tuple(drafts))])


def log_of(count: int) -> MemoryStore:
    store = MemoryStore()
    keys = [
        {"kind": "key", "receipt_id": key.kid, "principal": "gate", "action": "add", "key": key.describe()}
        for key in (LOG_KEY, GATE_KEY)
    ]
    write_log(store, [Draft(members=members, signer=LOG_SIGNER) for members in keys])
    alarms = [{"kind": "alarm", "receipt_id": f"r{number}", "principal": "gate"} for number in range(count)]
    for start in range(0, count, 64):
        write_log(store, [Draft(members=members, payload=b"x") for members in alarms[start : start + 64]])
    return store


def exported(store: Store, progress: Callable[[int], None] | None = None) -> tuple[Exported, dict[str, bytes]]:
    files: dict[str, bytes] = {}

    def write(name: str, blocks: Iterable[bytes]) -> None:
        assert name not in files
        files[name] = b"".join(blocks)

    with store.reader() as reader:
        keys = public_keys(reader)
        done = export_log(reader, origin=LOG, signer=LOG_KEY, keys=keys, write=write, progress=progress)
    return done, files


def verified(files: dict[str, bytes], **options: Any) -> Verified:
    return verify_export([files["receipts.jsonl"]], checkpoint=files["checkpoint"], keys=keys_file(), **options)


@pytest.mark.parametrize("count", [0, 1, 499, 500, 1_200])
def test_an_export_verifies_with_keys_that_came_another_way(count: int) -> None:
    told: list[int] = []
    done, files = exported(log_of(count), told.append)
    found = verified(files)
    assert (found.size, found.root) == (count + 2, done.checkpoint.root)
    assert told[-1] == count + 2
    assert files["checkpoint"] == done.note
    assert orjson.loads(files["keys.json"])["keys"][1] == {**GATE_KEY.describe(), "from": 1}
    assert list(files) == ["keys.json", "receipts.jsonl", "checkpoint"]


def test_a_log_that_grew_is_consistent_with_the_note_that_was_kept() -> None:
    store = log_of(70)
    earlier, _ = exported(store)
    write_log(store, [Draft(members={"kind": "alarm", "receipt_id": "later", "principal": "gate"})])
    _, files = exported(store)
    assert verified(files, since=earlier.note).since == 72


def test_an_empty_log_is_exported() -> None:
    _, files = exported(MemoryStore())
    assert files["receipts.jsonl"] == b""
    assert verified(files).size == 0


def test_erasing_a_payload_does_not_break_the_log() -> None:
    store = log_of(5)
    with store.transaction() as transaction:
        assert transaction.erase_payload(4)
    assert verified(exported(store)[1]).size == 7


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: Head(size=head.size, leaf=head.leaf, frontier=head.frontier[:-1] + b"x", time=head.time),
        lambda head: Head(size=head.size - 1, leaf=head.leaf, frontier=head.frontier, time=head.time),
        lambda head: Head(size=head.size, leaf=head.leaf, frontier=head.frontier[:-1], time=head.time),
    ],
)
def test_a_store_that_does_not_add_up_gives_no_checkpoint(
    damage: Callable[[Head], Head], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = log_of(3)
    monkeypatch.setattr(MemoryReader, "head", lambda self: damage(SqliteReader.head(self)))
    files: dict[str, bytes] = {}

    def write(name: str, blocks: Iterable[bytes]) -> None:
        files[name] = b"".join(blocks)

    with pytest.raises(StoreCorrupt), store.reader() as reader:
        export_log(reader, origin=LOG, signer=LOG_KEY, keys={}, write=write)
    assert "checkpoint" not in files
