"""Receipts and payloads as auditors see them: masked unless they were asked to be revealed."""

from __future__ import annotations

from typing import Any, Final

from aegis.core.decision import finding_to_wire
from aegis.core.text import mask_value
from aegis.gate.record import findings_of

# What a payload says that no caller wrote, or that the receipt beside it says too.
_PLAIN: Final = frozenset({"tool", "server", "guards", "approval", "action"})
# A digest without salt of a short argument is found by trying: it is shown with the argument or not at all.
_DIGESTS: Final = frozenset({"request_digest", "call_digest", "digest"})
_HIDDEN: Final = frozenset({"epoch"})


def summary(body: dict[str, Any]) -> dict[str, Any]:
    """Return a receipt without its signature, for lists and events."""
    return {name: value for name, value in body.items() if name != "sig"}


def payload_view(payload: dict[str, Any], *, reveal: bool) -> dict[str, Any]:
    """Return the decrypted payload of a receipt, masked unless `reveal`."""
    view: dict[str, Any] = {}
    for name, value in payload.items():
        if name in _HIDDEN or (name in _DIGESTS and not reveal):
            continue
        if name == "findings":
            view[name] = [finding_to_wire(finding, reveal=reveal) for finding in findings_of(payload)]
        elif reveal or name in _PLAIN:
            view[name] = value
        else:
            view[name] = mask_value(value)
    return view
