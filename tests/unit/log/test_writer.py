"""Group commit: units stand or fall alone, and nothing is answered that was not recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from aegis.core.ports import Document, Store, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict, StoreUnavailable
from aegis.gate.events import new_id
from aegis.keys.keyring import Keyring
from aegis.log.writer import CallKey, CallMoved, ControlMoved, Ledger, Unit
from aegis.store import open_store
from support.threads import together


def draft(kind: str = "alarm", **members: object) -> Draft:
    return Draft(members={"kind": kind, "receipt_id": new_id(), "principal": "p", **members})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store("memory:", home=tmp_path, durability="os")


def ledger_over(store: Store, folder: Path, now: list[int] | None = None) -> tuple[Ledger, list[int]]:
    behind: list[int] = []
    ring = Keyring(folder / "keys")
    clock = now if now is not None else [1_000_000]
    ledger = Ledger(
        store=store,
        log="aegis/log/test",
        signer_for=ring.signer_for,
        seal=ring.seal,
        clock=lambda: clock[0],
        on_clock_behind=behind.append,
    )
    return ledger, behind


def bodies(store: Store) -> list[dict[str, object]]:
    with store.reader() as reader:
        return [orjson.loads(entry.body) for entry in reader.entries(0, reader.head().size)]


def test_leaves_follow_each_other_in_one_chain(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    first = ledger.append(Unit(drafts=(draft(), draft())))
    second = ledger.append(Unit(drafts=(draft(),)))
    assert [recorded.index for recorded in (*first, *second)] == [0, 1, 2]
    assert [body["prev"] for body in bodies(store)] == ["", first[0].leaf_hash.hex(), first[1].leaf_hash.hex()]


def test_a_unit_that_loses_leaves_its_neighbours_alone(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)

    def lose(transaction: Transaction) -> Sequence[Draft]:
        raise StoreConflict("lost")

    answers = ledger.commit([Unit(drafts=(draft(),)), Unit(drafts=(draft(),), apply=lose), Unit(drafts=(draft(),))])
    assert [isinstance(answer, StoreConflict) for answer in answers] == [False, True, False]
    assert len(bodies(store)) == 2


def test_a_unit_made_under_an_older_epoch_is_refused(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    with store.transaction() as transaction:
        epoch = transaction.bump_epoch()
    with pytest.raises(ControlMoved):
        ledger.append(Unit(drafts=(draft(),), epoch=epoch - 1))
    ledger.append(Unit(drafts=(draft(),), epoch=epoch))
    assert len(bodies(store)) == 1


def test_a_unit_that_moves_the_epoch_refuses_those_behind_it_in_its_own_group_and_later(
    store: Store, tmp_path: Path
) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    epoch = store.epoch()

    def stop(transaction: Transaction) -> Sequence[Draft]:
        transaction.bump_epoch()
        return (draft("revocation"),)

    answers = ledger.commit([Unit(apply=stop), Unit(drafts=(draft(),), epoch=epoch)])
    assert isinstance(answers[1], ControlMoved)
    with pytest.raises(ControlMoved):
        ledger.append(Unit(drafts=(draft(),), epoch=epoch))


def test_of_two_units_for_one_call_in_one_group_the_first_wins(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)

    def unit() -> Unit:
        return Unit(
            drafts=(draft("decision", session="s", call_id="c"),),
            call=CallKey(principal="p", session="s", call_id="c"),
        )

    answers = ledger.commit([unit(), unit()])
    assert not isinstance(answers[0], StoreConflict)
    assert isinstance(answers[1], CallMoved)
    with pytest.raises(CallMoved):
        ledger.append(unit())


def test_a_clock_that_runs_backwards_is_reported_and_never_recorded(store: Store, tmp_path: Path) -> None:
    now = [5_000_000]
    ledger, behind = ledger_over(store, tmp_path, now)
    ledger.append(Unit(drafts=(draft(),)))
    now[0] = 2_000_000
    ledger.append(Unit(drafts=(draft(),)))
    times = [body["time"] for body in bodies(store)]
    assert times[0] == times[1]
    assert behind == [3_000_000]


def test_a_store_that_is_gone_records_nothing_and_works_again_when_it_is_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    with monkeypatch.context() as patch:

        def gone(*, wait_s: float | None = None) -> None:
            raise StoreUnavailable("gone")

        patch.setattr(store, "transaction", gone)
        with pytest.raises(StoreUnavailable):
            ledger.append(Unit(drafts=(draft(),)))
    ledger.append(Unit(drafts=(draft(),)))
    assert len(bodies(store)) == 1


def test_many_threads_append_every_unit_exactly_once(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    ids: list[str] = []

    def work() -> None:
        for _ in range(25):
            ids.extend(recorded.receipt_id for recorded in ledger.append(Unit(drafts=(draft(),))))

    together(8, work)
    stored = [body["receipt_id"] for body in bodies(store)]
    assert sorted(stored, key=str) == sorted(ids)
    assert len(stored) == 200


def test_a_unit_writes_its_documents_with_its_receipt_or_not_at_all(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)
    document = Document(collection="c", key="k", version=1, body=b"x")

    def write(transaction: Transaction) -> Sequence[Draft]:
        transaction.put_document(document)
        return (draft(),)

    ledger.append(Unit(apply=write))
    with pytest.raises(StoreConflict):
        ledger.append(Unit(apply=write))
    assert len(bodies(store)) == 1


def test_a_unit_that_refuses_itself_leaves_its_neighbours_alone(store: Store, tmp_path: Path) -> None:
    ledger, _ = ledger_over(store, tmp_path)

    def refuse(transaction: Transaction) -> Sequence[Draft]:
        raise InvalidCall("no")

    answers = ledger.commit([Unit(drafts=(draft(),)), Unit(apply=refuse), Unit(drafts=(draft(),))])
    assert [isinstance(answer, InvalidCall) for answer in answers] == [False, True, False]
    with pytest.raises(InvalidCall):
        ledger.append(Unit(apply=refuse))
    assert len(bodies(store)) == 2
