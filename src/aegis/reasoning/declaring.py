"""Declaring the plan of a session: on the host's own credential, in the log with a receipt, and tightened freely.

(1) a plan is read strictly, and a session that is not open is opened by it
(2) the plan in force is found again, and one that lets nothing more through takes its place at once
(3) any other plan asks a person, as a call would; the same plan declared again takes effect after the yes
(4) the plan is recorded with its receipt; the store keeps it encrypted, with what of it is done

A session that was opened from another one has the plan of that one, and declares none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct, structs

from aegis.context.heads import COLLECTION as MEMORY
from aegis.context.heads import fresh_head, put_head, read_head, seal, unseal
from aegis.context.sessions import find_session, opening, session_key
from aegis.core.call import ToolCall, check_name
from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.decision import Decision, DeclaredPlan, ReceiptRef
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, StoreConflict, StoreUnavailable
from aegis.gate.control import check_runs
from aegis.gate.events import new_id
from aegis.gate.participants import Doing
from aegis.gate.parts import Parts
from aegis.log.writer import Unit
from aegis.reasoning.plan import SessionPlan, read_plan, to_wire

COLLECTION: Final = "session-plans"
SERVER: Final = "aegis"
TOOL: Final = "declare_plan"
_ATTEMPTS: Final = 4
_ID_CHARS: Final = 32

Ask = Callable[[Principal, ToolCall], Doing[Decision]]


class PlanCall(ToolCall):
    """A plan that lets more through than the one in force, as the call that people are asked about.

    The gate alone makes it: a call of the same name that an agent makes is a call like any other.
    """

    __slots__ = ()


class PlanBook(Struct, frozen=True, kw_only=True):
    """The plan in force, how often each of its steps is done, and its receipt; `version` is that of the document."""

    plan: SessionPlan
    done: tuple[int, ...]
    receipt: str
    version: int = 0

    def counted(self, step: int) -> PlanBook:
        """The book after one more deed of a step."""
        done = (*self.done[:step], self.done[step] + 1, *self.done[step + 1 :])
        return structs.replace(self, done=done)


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(PlanBook).decode


def load_plan(parts: Parts, reader: Reader, key: str) -> PlanBook | None:
    """The plan of the session of that key."""
    document = reader.document(COLLECTION, key)
    if document is None:
        return None
    return structs.replace(_decode(unseal(parts, document.body)), version=document.version)


def put_plan(parts: Parts, transaction: Transaction, key: str, book: PlanBook) -> None:
    """Write the plan of a session after the version that was read."""
    body = seal(parts, _encode(structs.replace(book, version=0)))
    transaction.put_document(Document(collection=COLLECTION, key=key, version=book.version + 1, body=body))


def plan_of(parts: Parts, principal: Principal, session: str) -> PlanBook:
    """The plan that binds a session; raises `InvalidCall` (404) where none was declared."""
    with parts.store.reader() as reader:
        check_runs(reader, principal)
        key = session_key(principal, session)
        book = load_plan(parts, reader, _binding(reader, key) or key)
    if book is None:
        raise InvalidCall("no plan was declared for this session", code="not_found", status=404)
    return book


def plan_steps(
    parts: Parts, principal: Principal, session: str, declared: dict[str, Any], ask: Ask, *, enforced: bool
) -> Doing[DeclaredPlan]:
    """The steps that declare a plan; `ask` decides a call, and is asked where a plan loosens one that is `enforced`.

    Raises `InvalidCall` where it is not declared.
    """
    check_name("session", session)
    plan = read_plan(declared)  # (1)
    key = session_key(principal, session)
    for _ in range(_ATTEMPTS):
        with parts.store.reader() as reader:
            check_runs(reader, principal)
            opened = find_session(parts, reader, principal, session)
            book = load_plan(parts, reader, key)
            binding = _binding(reader, key)
        if binding and binding != key:
            raise InvalidCall(
                "the session has the plan of the one that it was opened from", code="conflict", status=409
            )
        if book is not None:
            if book.plan == plan:  # (2)
                return DeclaredPlan(session=session, digest=plan.digest, receipt=_place(parts, book.receipt))
            if enforced and not book.plan.allows(plan, book.done):  # (3)
                decision = yield from ask(principal, _asked(session, plan, book))
                if decision.approval is not None:
                    return DeclaredPlan(session=session, digest=plan.digest, approval=decision.approval)
                if not decision.allowed:
                    raise InvalidCall(
                        f"the plan lets more through than the one in force: {decision.message}",
                        code="refused",
                        hint="declare a plan that is narrower",
                        status=409,
                    )
                plan = plan if decision.arguments is None else read_plan(decision.arguments)
        begun: list[Draft] = []
        first: Unit | None = None
        if opened is None:
            first = opening(principal, session, "")
            begun.extend(first.drafts)
        parent = first.drafts[0].members["receipt_id"] if first is not None else opened.receipt_id if opened else ""
        begun.append(_draft(principal, session, plan, parent, book))
        try:
            recorded = yield _unit(parts, principal, key, plan, book, first, begun)  # (4)
        except StoreConflict:  # another plan was declared, or a step of this one was done, meanwhile
            continue
        place = recorded[len(begun) - 1]
        receipt = ReceiptRef(id=place.receipt_id, index=place.index, leaf_hash=place.leaf_hash.hex())
        return DeclaredPlan(session=session, digest=plan.digest, receipt=receipt, fresh=True)
    raise StoreUnavailable("the plan could not be recorded")


def _place(parts: Parts, receipt_id: str) -> ReceiptRef | None:
    """Where the log keeps the receipt of a plan."""
    with parts.store.reader() as reader:
        entry = reader.entry_by_id(receipt_id)
    if entry is None:
        return None
    return ReceiptRef(id=entry.receipt_id, index=entry.index, leaf_hash=entry.leaf_hash.hex())


def _binding(reader: Reader, key: str) -> str:
    """The key of the session whose plan binds this one, empty where none does."""
    document = reader.document(MEMORY, key)
    return "" if document is None else read_head(document).plan


def _asked(session: str, plan: SessionPlan, book: PlanBook) -> PlanCall:
    """The call that stands for a plan: the same plan instead of the same one is the same call."""
    name = f"plan-{plan.digest.removeprefix('sha-256:')[:_ID_CHARS]}-{book.receipt}"
    return PlanCall(tool=TOOL, server=SERVER, arguments=to_wire(plan), call_id=name, session=session)


def _draft(principal: Principal, session: str, plan: SessionPlan, parent: str, book: PlanBook | None) -> Draft:
    value: dict[str, Any] = {"plan": to_wire(plan)}
    if book is not None:
        value["revises"] = book.receipt
    salt, payload = os.urandom(SALT_BYTES), orjson.dumps(value)
    members: dict[str, Any] = {
        "kind": "session",
        "receipt_id": new_id(),
        "parent": parent,
        "principal": principal.id,
        "session": session,
        "action": "plan",
        "payload_commitment": payload_commitment(salt, payload),
    }
    if principal.agent is not None:
        members["agent"] = principal.agent
    return Draft(members=members, payload=payload, salt=salt)


def _unit(
    parts: Parts,
    principal: Principal,
    key: str,
    plan: SessionPlan,
    book: PlanBook | None,
    first: Unit | None,
    drafts: Sequence[Draft],
) -> Unit:
    receipt_id: str = drafts[-1].members["receipt_id"]
    version = 0 if book is None else book.version

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_runs(transaction, principal)
        if first is not None and first.apply is not None:
            first.apply(transaction)
        known = transaction.document(COLLECTION, key)
        if (0 if known is None else known.version) != version:
            raise StoreConflict("the plan moved meanwhile")
        put_plan(
            parts,
            transaction,
            key,
            PlanBook(
                plan=plan,
                done=(0,) * len(plan.steps),
                receipt=receipt_id,
                version=version,
            ),
        )
        # Whoever decides on a call of the session now decides again.
        document = transaction.document(MEMORY, key)
        head = fresh_head(parts) if document is None else read_head(document)
        head = structs.replace(head, plan=key, reads=head.reads + 1)
        put_head(transaction, key, head, 0 if document is None else document.version)
        return ()

    return Unit(drafts=tuple(drafts), apply=apply)
