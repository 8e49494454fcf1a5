"""What a verifier found, typed: a break names its kind and the first bad position."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

BreakKind = Literal[
    "edited", "deleted", "reordered", "duplicated", "chain_broken", "clock_went_back", "fork", "tail_cut",
    "uncovered", "not_canonical", "unknown_version", "unknown_member", "missing_member", "malformed_member",
    "wrong_log", "missing_signature", "unknown_key", "key_not_valid", "key_not_endorsed", "checkpoint_invalid",
    "proof_invalid", "keys_invalid", "parent_missing", "call_not_allowed", "approval_missing",
    "approval_reused", "permit_reused", "payload_changed", "mission_invalid", "mission_unknown", "mission_exceeded",
    "budget_exceeded", "rolled_back", "document_changed", "column_changed",
]  # fmt: skip

# One sentence for people, by kind; `docs/reference` lists them, and a test keeps both complete.
MEANING: Final[dict[BreakKind, str]] = {
    "edited": "the content of a receipt differs from what its key signed",
    "deleted": "a receipt is gone from the middle of the log",
    "reordered": "receipts stand in another order than the one they were appended in",
    "duplicated": "a receipt or its identifier occurs twice",
    "chain_broken": "a receipt does not continue the one before it",
    "clock_went_back": "a receipt is older than the one before it",
    "fork": "the log shows another history than the one a checkpoint committed to",
    "tail_cut": "the log ends before a checkpoint says that it does",
    "uncovered": "receipts stand after the end that the checkpoint commits to",
    "not_canonical": "a line is not the one canonical spelling of its receipt",
    "unknown_version": "a receipt has a version that this verifier does not know",
    "unknown_member": "a receipt has a member that its version does not have",
    "missing_member": "a receipt lacks a member that its version demands",
    "malformed_member": "a member of a receipt has a value that its version does not allow",
    "wrong_log": "a receipt or checkpoint belongs to another log",
    "missing_signature": "a receipt has no signature",
    "unknown_key": "a receipt is signed by a key that nobody vouches for",
    "key_not_valid": "a receipt is signed by a key that is not valid for it at its index",
    "key_not_endorsed": "a key was announced without the endorsement of the log's key",
    "checkpoint_invalid": "a checkpoint is malformed or not signed by the log's key",
    "proof_invalid": "a proof does not lead to the root that it should",
    "keys_invalid": "the keys given to the verifier are malformed",
    "parent_missing": "a receipt follows from a decision that the log does not hold",
    "call_not_allowed": "a call that was not allowed has a result, or used a permit",
    "approval_missing": "something was redeemed that nobody had approved",
    "approval_reused": "an approval was redeemed twice",
    "permit_reused": "a permit was redeemed twice",
    "payload_changed": "a payload is not the one that its receipt committed to",
    "mission_invalid": "a mission is malformed, or is not signed by the key that it names",
    "mission_unknown": "a receipt names a mission or a lineage that the log does not hold",
    "mission_exceeded": "a mission goes beyond its parent, or a released call beyond its mission",
    "budget_exceeded": "released calls took more than a ceiling of their mission allows",
    "rolled_back": "the store is older than its home saw it, or holds another log",
    "document_changed": "a document of the store is not what was put there last",
    "column_changed": "a column by which a receipt is found says something else than the receipt",
}


class Break(Struct, frozen=True, kw_only=True):
    """One defect. `line` counts from 1 and is 0 where the defect is not on a line; `index` is -1 if unknown.

    `detail` names members, never their values.
    """

    kind: BreakKind
    detail: str = ""
    line: int = 0
    index: int = -1
    receipt_id: str = ""

    def __str__(self) -> str:
        place = f" at line {self.line}" if self.line else ""
        index = f", index {self.index}" if self.index >= 0 else ""
        receipt = f", receipt `{self.receipt_id}`" if self.receipt_id else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.kind}{place}{index}{receipt}: {MEANING[self.kind]}{detail}"
