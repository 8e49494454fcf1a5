"""Erasing a payload: it, its key and its salt are deleted for good; the log keeps its commitment and still verifies."""

from __future__ import annotations

from collections.abc import Sequence

from aegis.audit.writer import Unit
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall
from aegis.gate.ids import new_id


def erase_payload(receipt_id: str, *, principal: str) -> Unit:
    """The unit that erases the payload of one receipt, with a receipt of its own that names who did it.

    Recording it raises `InvalidCall` (404) where there is no such receipt, or nothing left to erase.
    """

    def apply(transaction: Transaction) -> Sequence[Draft]:
        entry = transaction.entry_by_id(receipt_id)
        if entry is None or not transaction.erase_payload(entry.index):
            raise InvalidCall("there is no payload under this receipt", code="not_found", status=404)
        members = {
            "kind": "erasure",
            "receipt_id": new_id(),
            "parent": receipt_id,
            "principal": principal,
            "action": "erase",
        }
        return (Draft(members=members),)

    return Unit(apply=apply)


def revealing_all(principal: str) -> Unit:
    """The unit that puts on record that every payload is about to be written out unmasked."""
    members = {"kind": "access", "receipt_id": new_id(), "principal": principal, "action": "export"}
    return Unit(drafts=(Draft(members=members),))
