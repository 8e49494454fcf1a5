"""Rules between receipts: what must have come before, and what may come only once.

They hold for what the log says; that a tool ran or did not run is outside of any log.
"""

from __future__ import annotations

from array import array
from typing import Any, Final, Protocol

from aegis.core.breaks import Break, BreakKind
from aegis.errors import LogInvalid

# A set of identifiers in 16 to 32 bytes each, so that a verifier can remember those of a long log.
#
# It keeps 63 bits of the interpreter's keyed string hash: two identifiers of ten million are taken for one another
# with a chance of one in a hundred thousand, and nobody can make that happen, since the key is drawn anew for every
# process.

_FIRST_SLOTS: Final = 1 << 12
_MASK: Final = (1 << 63) - 1


class IdSet:
    """Open addressing with linear probing, at most half full; zero marks a free slot."""

    def __init__(self) -> None:
        self._slots = array("Q", bytes(8 * _FIRST_SLOTS))
        self._mask = _FIRST_SLOTS - 1
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return bool(self._slots[self._find(_number(name))])

    @property
    def size_in_bytes(self) -> int:
        """What the slots take."""
        return len(self._slots) * self._slots.itemsize

    def add(self, name: str) -> bool:
        """Add an identifier; whether it was new."""
        number = _number(name)
        at = self._find(number)
        if self._slots[at]:
            return False
        self._slots[at] = number
        self._count += 1
        if self._count * 2 > self._mask:
            self._grow()
        return True

    def _find(self, number: int) -> int:
        """The slot that holds `number`, or the free one where it belongs."""
        slots, mask = self._slots, self._mask
        at = number & mask
        while (found := slots[at]) and found != number:
            at = (at + 1) & mask
        return at

    def _grow(self) -> None:
        old = self._slots
        self._slots = array("Q", bytes(16 * len(old)))
        self._mask = len(self._slots) - 1
        for number in old:
            if number:
                self._slots[self._find(number)] = number


def _number(name: str) -> int:
    return hash(name) & _MASK | 1 << 63


_FINAL: Final = frozenset({"denied", "expired", "cancelled", "redeemed"})
_ACTIONS: Final = _FINAL - {"redeemed"} | {"approved"}
_LOOKED: Final = "previewed"  # what a call would do was looked at: this moves nothing
RELEASED: Final = ("allow", "sanitize")  # the decisions that let a call run
_WAITING: Final = frozenset({"voted", "narrowed", "passed_on"})  # it waits on


class RecordRule(Protocol):
    """Sees every receipt once, in order; raises `LogInvalid` for the first that breaks the rule."""

    def see(self, receipt: dict[str, Any]) -> None: ...


class Records:
    """The rules of version 1.

    (1) an identifier occurs once
    (2) a parent came before
    (3) an approval is redeemed at most once, after it was approved, and not after it ended otherwise
    (4) a permit is redeemed at most once
    (5) what gave a result or redeemed a permit was a decision that let its call run: it allowed it, or it
        held it and its approval was redeemed
    """

    def __init__(self) -> None:
        self.ids = IdSet()
        self._allowed = IdSet()
        self._refused = IdSet()
        self._held: dict[str, str] = {}  # decision -> its approval
        self._permits = IdSet()
        self._approvals: dict[str, str] = {}

    def see(self, receipt: dict[str, Any]) -> None:
        kind, receipt_id = receipt["kind"], receipt["receipt_id"]
        # (1)
        if not self.ids.add(receipt_id):
            raise _invalid("duplicated")
        # (2)
        parent = receipt.get("parent")
        if parent is not None and (parent not in self.ids or parent == receipt_id):
            raise _invalid("parent_missing")
        if kind == "decision":
            self._decide(receipt)
        elif kind == "result":
            self._ran(parent)
        elif kind == "approval":
            self._resolve(receipt)
        elif kind == "redemption":
            self._redeem(receipt)

    def _decide(self, receipt: dict[str, Any]) -> None:
        receipt_id, approval = receipt["receipt_id"], receipt.get("approval_id")
        if receipt.get("decision") in RELEASED:
            self._allowed.add(receipt_id)
        elif type(approval) is str:
            self._held[receipt_id] = approval
        else:
            self._refused.add(receipt_id)

    def _ran(self, decision: str | None) -> None:
        """(5) The call of `decision` ran, or somebody says so."""
        if decision is None:
            raise _invalid("parent_missing")
        if decision in self._allowed:
            return
        approval = self._held.get(decision)
        if approval is None and decision not in self._refused:
            raise _invalid("parent_missing")
        if approval is None or self._approvals.get(approval) != "redeemed":
            raise _invalid("call_not_allowed")

    def _resolve(self, receipt: dict[str, Any]) -> None:
        approval, action = receipt.get("approval_id"), receipt.get("action")
        if approval is not None and action == _LOOKED:
            return
        if approval is None or action not in _ACTIONS | _WAITING:
            raise _invalid("malformed_member", "`approval_id` or `action`")
        state = self._approvals.get(approval)
        if state in _FINAL or (action in _WAITING and state is not None):
            raise _invalid("approval_reused", "it had ended before")
        if action not in _WAITING:
            self._approvals[approval] = action

    def _redeem(self, receipt: dict[str, Any]) -> None:
        approval, permit = receipt.get("approval_id"), receipt.get("permit_id")
        # (3)
        if approval is not None:
            state = self._approvals.get(approval)
            if state == "redeemed":
                raise _invalid("approval_reused")
            if state != "approved":
                raise _invalid("approval_missing")
            self._approvals[approval] = "redeemed"
        # (4)
        elif permit is None:
            raise _invalid("approval_missing")
        elif not self._permits.add(permit):
            raise _invalid("permit_reused")
        else:
            self._ran(receipt.get("parent"))


def _invalid(kind: BreakKind, detail: str = "") -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=detail))
