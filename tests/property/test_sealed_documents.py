"""Honest histories never raise an alarm, whatever is done by whom and in which order; a row written past Aegis does."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from aegis.core.ports import Document
from aegis.errors import StoreCorrupt
from aegis.store import SqliteStore
from aegis.store.sealed import SealedStore
from support.log_entries import append, entry, payload
from support.store_breaks import Outside, Row

KEY = b"k" * 32
KEYS = st.integers(0, 25).map(str)
COLLECTIONS = st.sampled_from(["a", "b"])
STATES = st.sampled_from(["", "open", "done"])


class Lost(Exception):
    """A unit that fails on purpose."""


class HonestHistory(RuleBasedStateMachine):
    """Two processes on one store, that append, write, delete, erase, fail, open and close."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="aegis-sealed-"))
        self.kept: dict[tuple[str, str], Document] = {}
        self.size = 0
        self.stores = [self.opened(), self.opened()]
        with self.stores[0].transaction():
            pass  # a store that nobody sealed is sealed by its first transaction

    def opened(self) -> SealedStore:
        return SealedStore(SqliteStore(self.folder / "log.db", durability="os"), KEY, adopts="unsealed")

    def put(self, collection: str, key: str, state: str) -> Document:
        before = self.kept.get((collection, key))
        version = 1 if before is None else before.version + 1
        return Document(collection=collection, key=key, version=version, state=state, body=b"%d" % version)

    @rule(at=st.integers(0, 1), collection=COLLECTIONS, key=KEYS, state=STATES, appends=st.booleans())
    def write(self, at: int, collection: str, key: str, state: str, *, appends: bool) -> None:
        document = self.put(collection, key, state)
        with self.stores[at].transaction() as transaction:
            assert transaction.document(collection, key) == self.kept.get((collection, key))
            transaction.put_document(document)
            assert transaction.document(collection, key) == document
            if appends:
                append(transaction, entry(self.size))
        self.size += appends
        self.kept[collection, key] = document

    @rule(at=st.integers(0, 1), collection=COLLECTIONS, key=KEYS)
    def delete(self, at: int, collection: str, key: str) -> None:
        with self.stores[at].transaction() as transaction:
            transaction.delete_document(collection, key)
        self.kept.pop((collection, key), None)

    @rule(at=st.integers(0, 1), count=st.integers(1, 3))
    def grow(self, at: int, count: int) -> None:
        with self.stores[at].transaction() as transaction:
            append(transaction, *(entry(self.size + step) for step in range(count)), payloads=(payload(self.size),))
        self.size += count

    @rule(at=st.integers(0, 1), index=st.integers(0, 50))
    def erase(self, at: int, index: int) -> None:
        with self.stores[at].transaction() as transaction:
            transaction.erase_payload(index)

    @rule(at=st.integers(0, 1))
    def bump(self, at: int) -> None:
        with self.stores[at].transaction() as transaction:
            transaction.bump_epoch()

    @rule(at=st.integers(0, 1), collection=COLLECTIONS, key=KEYS, state=STATES, appends=st.booleans())
    def fail(self, at: int, collection: str, key: str, state: str, *, appends: bool) -> None:
        document = self.put(collection, key, state)
        with pytest.raises(Lost), self.stores[at].transaction() as transaction:
            transaction.put_document(document)
            if appends:
                append(transaction, entry(self.size))
            raise Lost

    @rule(at=st.integers(0, 1))
    def reopen(self, at: int) -> None:
        self.stores[at].close()
        self.stores[at] = self.opened()

    @invariant()
    def every_reader_sees_what_was_put_last(self) -> None:
        for store in self.stores:
            with store.reader() as reader:
                for collection in ("a", "b"):
                    own = {key: one for (owner, key), one in self.kept.items() if owner == collection}
                    assert reader.documents(collection) == [own[key] for key in sorted(own)]
                    pages, after = [], ""
                    while page := reader.documents(collection, state="open", after=after, limit=2):
                        pages += page
                        after = page[-1].key
                    assert pages == [own[key] for key in sorted(own) if own[key].state == "open"]
                assert reader.document("a", "none") is None
            assert list(store.defects()) == []

    def teardown(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


def test_an_honest_history_raises_no_alarm() -> None:
    run_state_machine_as_test(HonestHistory, settings=settings(max_examples=20, stateful_step_count=25, deadline=None))


@given(
    documents=st.dictionaries(st.tuples(COLLECTIONS, KEYS), STATES, min_size=1, max_size=30),
    at=st.integers(0, 99),
    row=st.one_of(st.none(), st.tuples(st.integers(0, 3), STATES, st.binary(max_size=4))),
    other=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_any_row_of_documents_that_was_written_past_aegis_is_found(
    documents: dict[tuple[str, str], str], at: int, row: Row | None, *, other: bool
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="aegis-sealed-"))
    store = SealedStore(SqliteStore(folder / "log.db", durability="os"), KEY, adopts="unsealed")
    try:
        for (collection, key), state in documents.items():
            with store.transaction() as transaction:
                transaction.put_document(Document(collection=collection, key=key, version=1, state=state, body=b"1"))
        outside = Outside(folder / "log.db")
        names = [("a", "new")] if other else [*documents]
        names += [
            (name, key) for name, key in outside.run("SELECT collection, key FROM document WHERE collection = 'seal'")
        ]
        collection, key = names[at % len(names)]
        before = outside.get(collection, key)
        outside.put(collection, key, row)
        same = before == row or (
            collection == "seal" and row is not None and before is not None and before[2] == row[2]
        )
        fresh = SealedStore(SqliteStore(folder / "log.db", durability="os"), KEY)
        try:
            found = bool(list(fresh.defects()))
        except StoreCorrupt:
            found = True
        finally:
            fresh.close()
        assert found is not same
    finally:
        store.close()
        shutil.rmtree(folder)
