"""Canaries: keys, payees and tools that nobody needs, so that whoever touches one gives itself away.

A canary is a document with a value that looks real. Calls that hold the value, plain or encoded, and calls of a
canary tool are blocked; a result that holds it was read from where it lies. Both are on record under the rule `canary`,
which conditions of containment count.
"""

from __future__ import annotations

import base64
import secrets
import string
from collections.abc import Sequence
from typing import Any, Final, Literal
from urllib.parse import quote

import orjson
import re2
from msgspec import Struct, structs, to_builtins

from aegis.behaviour.containing import CANARY_RULE
from aegis.core.call import check_name
from aegis.core.finding import Finding, Report
from aegis.core.json import decode
from aegis.core.names import normalise_name
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.core.ports import Document, Entry, Reader, Store, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import rfc3339
from aegis.errors import InvalidCall
from aegis.gate.events import new_id
from aegis.log.writer import Unit

GUARD: Final = "canaries"
COLLECTION: Final = "canaries"
MAX_CANARIES: Final = 64  # watched at once: bounds the pattern that every call is read by
MAX_NOTE_CHARS: Final = 200
_UPPER: Final = string.ascii_uppercase + "234567"
_ALPHABET: Final = string.ascii_letters + string.digits
_SHORTEST: Final = 8  # characters of an encoded value below which its middle could stand in honest text

CanaryKind = Literal["aws-key", "api-key", "password", "payee", "email", "url", "tool"]
CANARY_KINDS: Final[tuple[CanaryKind, ...]] = ("aws-key", "api-key", "password", "payee", "email", "url", "tool")


class HoneyToken(Struct, frozen=True, kw_only=True):
    """One canary. `old` are the values that it had before: who stole one may use it later."""

    id: str
    kind: CanaryKind
    value: str
    note: str = ""
    by: str = ""
    minted_at: int = 0
    old: tuple[str, ...] = ()

    @property
    def masked(self) -> str:
        """The value as it is listed: tools by name, everything else by its ends."""
        return self.value if self.kind == "tool" else f"{self.value[:4]}…{self.value[-2:]}"


class WatchedCanary:
    """What is watched under one control epoch."""

    def __init__(self, canaries: Sequence[HoneyToken]):
        self.tools = {normalise_name(one.value): one.id for one in canaries if one.kind == "tool"}
        values = [value for one in canaries if one.kind != "tool" for value in (one.value, *one.old)]
        spellings = sorted({form for value in values for form in spelled(value)})
        self._pattern = re2.compile(b"|".join(map(re2.escape, spellings))) if spellings else None

    def is_in(self, data: bytes) -> bool:
        """Whether one of the values stands in `data`, plain or encoded."""
        return self._pattern is not None and self._pattern.search(data) is not None


def spelled(value: str) -> set[bytes]:
    """The forms in which a value is recognised: as it is, in hex, for URLs, and in base64 wherever it begins."""
    data = value.encode()
    forms = {data, data.hex().encode(), data.hex().upper().encode(), quote(value, safe="").encode()}
    for shift in range(3):
        # The first and last characters depend on what stands beside the value; those between are its own.
        text = base64.b64encode(b"\0" * shift + data)
        own = text[0 if shift == 0 else shift + 1 : (shift + len(data)) * 8 // 6]
        forms |= {own, own.replace(b"+", b"-").replace(b"/", b"_")} if len(own) >= _SHORTEST else set()
    return forms


class Canaries:
    """The canaries of one store, read once for each control epoch."""

    def __init__(self, store: Store):
        self._store = store
        self._known: tuple[int, WatchedCanary | None] = (-1, None)

    def watched(self, epoch: int) -> WatchedCanary | None:
        """What is watched under `epoch`, `None` where there is nothing; raises `StoreUnavailable`."""
        known, watched = self._known
        if known != epoch:
            with self._store.reader() as reader:
                epoch, watched = reader.head().epoch, _watched(reader)
            self._known = (epoch, watched)
        return watched

    def watched_in(self, transaction: Transaction, epoch: int) -> WatchedCanary | None:
        """The same inside of a transaction, which may be undone: nothing of it is remembered."""
        known, watched = self._known
        return watched if known == epoch else _watched(transaction)


def _watched(reader: Reader) -> WatchedCanary | None:
    canaries = list_canaries(reader)
    return WatchedCanary(canaries) if canaries else None


def list_canaries(reader: Reader) -> list[HoneyToken]:
    """Every canary, in the order of their ids."""
    found: list[HoneyToken] = []
    after = ""
    while page := reader.documents(COLLECTION, after=after):
        after = page[-1].key
        found += [decode(one.body, HoneyToken) for one in page]
    return found


def touched() -> Report:
    """The report on a call that touches a canary."""
    return Report(
        guard=GUARD,
        outcome=Outcome.BLOCK,
        verdict=Verdict.VIOLATION,
        reason=Reason.ATTACK_DETECTED,
        risk=Risk.CRITICAL,
        findings=(
            Finding(
                guard=GUARD,
                rule=CANARY_RULE,
                category="secret",
                severity=Risk.CRITICAL,
                outcome=Outcome.BLOCK,
                message="the call touches something that nobody has a use for",
            ),
        ),
    )


# Minting, rotating and retiring: each moves the control epoch, so that every gateway watches from its next decision.


def mint(kind: CanaryKind, *, value: str = "", note: str = "", by: str, now: int) -> tuple[HoneyToken, Unit]:
    """A new canary, and the unit that puts it in force; raises `InvalidCall` where it cannot be watched."""
    if len(note) > MAX_NOTE_CHARS:
        raise InvalidCall(f"`note` must have at most {MAX_NOTE_CHARS} characters")
    if kind == "tool":
        check_name("value", value)
    elif value:
        raise InvalidCall("only a tool is given its name; every other value is made here")
    canary = HoneyToken(id=new_id(), kind=kind, value=value or make(kind), note=note, by=by, minted_at=now)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if len(list_canaries(transaction)) >= MAX_CANARIES:
            raise InvalidCall(f"at most {MAX_CANARIES} canaries are watched", code="conflict", status=409)
        return [_put(transaction, canary, 1, "canary_minted", by)]

    return canary, Unit(apply=apply)


def rotate(reader: Reader, canary_id: str, *, by: str, now: int) -> tuple[HoneyToken, Unit]:
    """The canary with another value, and the unit that puts it in force; the old value is still watched.

    Raises `InvalidCall` (404), and 422 for a tool, whose name does not change.
    """
    stored, before = _find(reader, canary_id)
    if before.kind == "tool":
        raise InvalidCall("a tool keeps its name; retire it, and mint another")
    old = (before.value, *before.old)[:2]
    canary = structs.replace(before, value=make(before.kind), minted_at=now, old=old)

    def apply(transaction: Transaction) -> Sequence[Draft]:
        return [_put(transaction, canary, stored.version + 1, "canary_rotated", by)]

    return canary, Unit(apply=apply)


def retire(canary_id: str, *, by: str) -> Unit:
    """The unit after which a canary is not watched any more; recording it raises `InvalidCall` (404)."""

    def apply(transaction: Transaction) -> Sequence[Draft]:
        _find(transaction, canary_id)
        transaction.delete_document(COLLECTION, canary_id)
        transaction.bump_epoch()
        return [_draft("canary_retired", by)]

    return Unit(apply=apply)


def _find(reader: Reader, canary_id: str) -> tuple[Document, HoneyToken]:
    stored = reader.document(COLLECTION, canary_id)
    if stored is None:
        raise InvalidCall("there is no such canary", code="not_found", status=404)
    return stored, decode(stored.body, HoneyToken)


def _put(transaction: Transaction, canary: HoneyToken, version: int, action: str, by: str) -> Draft:
    body = orjson.dumps(to_builtins(canary))
    transaction.put_document(Document(collection=COLLECTION, key=canary.id, version=version, body=body))
    transaction.bump_epoch()
    return _draft(action, by)


def _draft(action: str, by: str) -> Draft:
    members: dict[str, Any] = {"kind": "config", "receipt_id": new_id(), "principal": by, "action": action}
    return Draft(members=members)


def make(kind: CanaryKind) -> str:
    """A value that looks like one of its kind and belongs to nobody."""
    if kind == "aws-key":
        return "AKIA" + _drawn(_UPPER, 16)
    if kind == "api-key":
        return "sk-proj-" + _drawn(_ALPHABET, 40)
    if kind == "payee":
        return _iban("DE", _drawn(string.digits, 18))
    if kind == "email":
        return f"accounts-{_drawn(string.digits, 8)}@payments.example"
    if kind == "url":
        return f"https://{_drawn(string.ascii_lowercase, 12)}.example/{_drawn(_ALPHABET, 16)}"
    return _drawn(_ALPHABET, 20)


def _drawn(alphabet: str, length: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(length))


def _iban(country: str, account: str) -> str:
    """An account number with the check digits of ISO 13616."""
    number = "".join(str(int(one, 36)) for one in f"{account}{country}00")
    return f"{country}{98 - int(number) % 97:02d}{account}"


# Watching: the newest receipts of calls and results that touched one.

LOOKED_AT: Final = 20_000  # newest receipts among which touches are looked for
MAX_TOUCHES: Final = 100
_TOUCHED: Final = b'"rules":["canary"]'  # canonical bytes hold a quote of a value only behind a backslash


def touches(reader: Reader) -> list[Entry]:
    """The newest receipts of calls that named a canary, and of results that held one."""
    size = reader.head().size
    found = [one for one in reader.entries(max(0, size - LOOKED_AT), size) if _is_touch(one)]
    return found[: -MAX_TOUCHES - 1 : -1]


def _is_touch(entry: Entry) -> bool:
    return entry.kind in ("decision", "result") and _TOUCHED in entry.body


def shown(canary: HoneyToken) -> dict[str, Any]:
    """A canary as it is listed: its value is masked."""
    return {
        "id": canary.id,
        "kind": canary.kind,
        "value": canary.masked,
        "note": canary.note,
        "by": canary.by,
        "minted_at": rfc3339(canary.minted_at),
    }


def shown_touch(entry: Entry) -> dict[str, Any]:
    """A touch as it is listed."""
    return {
        "receipt": entry.receipt_id,
        "time": rfc3339(entry.time),
        "kind": entry.kind,
        "agent": entry.agent,
        "session": entry.session,
        "tool": entry.tool,
    }
