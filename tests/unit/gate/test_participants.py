"""Parts look before any of them writes, and a step asks only those that have an answer to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from aegis.core.ports import Document, Transaction
from aegis.core.receipt import Draft
from aegis.errors import StoreConflict
from aegis.gate.participants import DecisionRecord, Part, Participant, Write, asked_of, joined
from aegis.log.writer import Unit
from aegis.store.sqlite import MemoryStore

RECORD = cast("DecisionRecord", None)  # no part of this page reads it


class Writer(Part):
    """Writes one document and one receipt; says in `seen` when it did what."""

    def __init__(self, name: str, seen: list[str], *, refuses: bool = False):
        self._name = name
        self._seen = seen
        self._refuses = refuses

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        self._seen.append(f"look {self._name}{' last' if last else ''}")
        if self._refuses:
            raise StoreConflict("something moved")

        def write(transaction: Transaction) -> Sequence[Draft]:
            self._seen.append(f"write {self._name}")
            transaction.put_document(Document(collection="c", key=self._name, version=1, body=b"x"))
            return (Draft(members={"receipt_id": self._name}),)

        return write


class Leader(Writer):
    leads = True


class Silent(Part):
    """Has nothing to write."""


def recorded(unit: Unit) -> list[Any]:
    store = MemoryStore()
    assert unit.apply is not None
    with store.transaction() as transaction:
        drafts = [*unit.drafts, *unit.apply(transaction)]
    return [draft.members["receipt_id"] for draft in drafts]


def own() -> Unit:
    return Unit(drafts=(Draft(members={"receipt_id": "own"}),))


def test_every_part_looks_before_any_part_writes() -> None:
    seen: list[str] = []
    unit = joined(own(), [Writer("a", seen), Silent(), Writer("b", seen)], RECORD)
    assert recorded(unit) == ["own", "a", "b"]
    assert seen == ["look a", "look b last", "write a", "write b"]


def test_nothing_is_written_where_one_of_them_refuses() -> None:
    seen: list[str] = []
    unit = joined(own(), [Writer("a", seen), Writer("b", seen, refuses=True)], RECORD)
    with pytest.raises(StoreConflict):
        recorded(unit)
    assert seen == ["look a", "look b last"]


def test_receipts_of_a_part_that_leads_come_before_the_decision() -> None:
    seen: list[str] = []
    unit = joined(own(), [Writer("a", seen), Leader("b", seen)], RECORD)
    assert recorded(unit) == ["b", "own", "a"]


def test_nothing_is_the_last_to_look_where_the_unit_itself_does() -> None:
    seen: list[str] = []

    def apply(_: Transaction) -> Sequence[Draft]:
        seen.append("unit")
        return (Draft(members={"receipt_id": "own"}),)

    first = Unit(apply=apply)
    unit = joined(first, [Writer("a", seen)], RECORD)
    assert recorded(unit) == ["own", "a"]
    assert seen == ["look a", "unit", "write a"]


def test_a_unit_with_nothing_to_add_stays_as_it_is() -> None:
    unit = own()
    assert joined(unit, [Silent()], RECORD) is unit


def test_a_step_asks_those_alone_that_have_an_answer_to_it() -> None:
    class Standing(Participant):
        def stands(self, reader: Any, decision: Any, epoch: int) -> bool:
            return False

    one = Standing()
    assert asked_of([Participant(), one], "stands") == (one.stands,)
    assert asked_of([Participant(), one], "view") == ()
