"""Finding the newest decision of a call that was seen before, on this process or another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from aegis.core.decision import Decision
from aegis.core.digest import payload_commitment
from aegis.core.ports import Entry, Reader
from aegis.core.strict_json import parse
from aegis.errors import StoreCorrupt
from aegis.gate.parts import Parts
from aegis.gate.record import recall


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """The newest decision of a call; `decision` is `None` where its payload was erased.

    `patched` are the arguments that will run, where they are not the submitted ones. `permit_id` is the
    permit that was minted, `irreversible` whether the call cannot be undone, `mode` how it was decided.
    """

    index: int
    receipt_id: str
    epoch: int
    decision: Decision | None
    patched: dict[str, Any] | None = None
    permit_id: str | None = None
    irreversible: bool = False
    mode: str = "enforce"


def look_up(parts: Parts, key: tuple[str, str, str]) -> Known | None:
    """What the log knows of the call `(principal, session, call_id)`."""
    with parts.store.reader() as reader:
        index = reader.latest_call(*key)
        if index is None:
            return None
        entry = reader.entry(index)
        if entry is None:
            raise StoreCorrupt("the store knows a call whose leaf it does not have")
        payload, salt = load_payload(parts, reader, entry)
    return known_of(entry, payload, salt)


def known_of(entry: Entry, payload: dict[str, Any] | None, salt: bytes) -> Known:
    """The known decision that an entry and its payload hold."""
    body = orjson.loads(entry.body)
    return Known(
        index=entry.index,
        receipt_id=entry.receipt_id,
        epoch=-1 if payload is None else payload["epoch"],
        decision=None if payload is None else recall(entry, payload, salt),
        patched=None if payload is None else payload.get("patched"),
        permit_id=body.get("permit_id"),
        irreversible=payload is not None and payload.get("irreversible", False),
        mode=body["settings"]["mode"],
    )


def load_payload(parts: Parts, reader: Reader, entry: Entry) -> tuple[dict[str, Any] | None, bytes]:
    """The decrypted payload of a leaf and its salt; `None` where it was erased or never stored.

    Raises `StoreCorrupt` where it is not the one that the receipt commits to.
    """
    stored = reader.payload(entry.index)
    if stored is None:
        return None, b""
    text = parts.keys.open_payload(stored.key, stored.body)
    # Canonical bytes hold a quote of a value only behind a backslash: this is the member and nothing else.
    if f'"payload_commitment":"{payload_commitment(stored.salt, text)}"'.encode() not in entry.body:
        raise StoreCorrupt("a stored payload is not the one that its receipt commits to")
    payload: dict[str, Any] = parse(text)
    return payload, stored.salt
