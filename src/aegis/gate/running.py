"""What a held call would run: the arguments as submitted, as patched, or as an approver narrowed them."""

from __future__ import annotations

from typing import Any

from aegis.approvals.model import Approval
from aegis.core.ports import Reader
from aegis.gate.parts import Parts
from aegis.gate.repeat import load_payload


def running(parts: Parts, reader: Reader, approval: Approval) -> dict[str, Any] | None:
    """The arguments that `approval` is for; `None` where they were erased."""
    payload = payload_of(parts, reader, approval.narrowed_by or approval.decision_id)
    if payload is None:
        return None
    arguments: dict[str, Any] = payload.get("patched", payload["arguments"])
    return arguments


def payload_of(parts: Parts, reader: Reader, receipt_id: str) -> dict[str, Any] | None:
    """The payload beside a receipt; `None` where there is none any more."""
    entry = reader.entry_by_id(receipt_id)
    return None if entry is None else load_payload(parts, reader, entry)[0]
