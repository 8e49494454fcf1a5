"""Minting permits: short-lived, signed, for exactly one call; and what they say."""

from __future__ import annotations

import base64
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from aegis.core.canonical import canonical
from aegis.core.decision import Decision
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft, Recorded
from aegis.core.times import MICROS
from aegis.errors import PermitInvalid, StoreConflict, StoreUnavailable
from aegis.gate.control import Control
from aegis.gate.events import Event, new_id, notify
from aegis.gate.participants import DecisionRecord, Part, Participant, asked_of
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.keys import jws
from aegis.keys.permits import LIFETIME_S, TYPE, Permit, check_permit, read_permit
from aegis.log.writer import ControlMoved, Unit
from aegis.policy.model import Evaluation

KEYS: Final = "keys"
REDEEMED: Final = "permits"


def mint(
    parts: Parts,
    *,
    permit_id: str,
    agent: str,
    session: str,
    server: str | None,
    tool: str,
    call_id: str,
    call_digest: str,
    decision_id: str,
    receipt: int,
    mode: str,
    online: bool,
    approval_id: str | None = None,
) -> str:
    """The permit `permit_id` for one recorded call, valid for `LIFETIME_S` seconds from now.

    `mode` is how the call was decided: a permit of anything but `enforce` opens nothing. `online` says
    that only the gateway itself may redeem it.
    """
    issued = parts.clock() // MICROS
    claims: dict[str, Any] = {
        "sub": agent,
        "aud": tool if server is None else f"{server}/{tool}",
        "tool": tool,
        "server": server,
        "session": session,
        "call_id": call_id,
        "call_digest": call_digest,
        "decision_id": decision_id,
        "receipt": receipt,
        "mode": mode,
        "online": online,
        "jti": permit_id,
        "iat": issued,
        "exp": issued + LIFETIME_S,
    }
    if approval_id is not None:
        claims["approval_id"] = approval_id
    return jws.sign(parts.keys.permit_signer(), TYPE, orjson.dumps(claims))


class Permitted(Part):
    """The permit of a call that may run: the call asks for it, or its tool demands one."""

    __slots__ = ("_parts", "_permit_id")

    def __init__(self, parts: Parts, permit_id: str):
        self._parts = parts
        self._permit_id = permit_id

    def members(self, evaluation: Evaluation) -> dict[str, Any]:
        return {"permit_id": self._permit_id}

    def release(self, decision: Decision, recorded: Sequence[Recorded], record: DecisionRecord) -> Decision:
        permit = permit_of(
            self._parts,
            record.asked.subject,
            decision,
            self._permit_id,
            mode=record.settings["mode"],
            irreversible=record.evaluation.irreversible,
        )
        return replace(decision, permit=permit)


def permit_of(
    parts: Parts, subject: Subject, decision: Decision, permit_id: str, *, mode: str, irreversible: bool
) -> str:
    """The permit of a call that was allowed without asking anybody; what cannot be undone is redeemed online."""
    call = subject.call
    return mint(
        parts,
        permit_id=permit_id,
        agent=subject.agent,
        session=subject.session,
        server=call.server,
        tool=call.tool,
        call_id=subject.call_id,
        call_digest=decision.call_digest,
        decision_id=decision.decision_id,
        receipt=-1 if decision.receipt is None else decision.receipt.index,
        mode=mode,
        online=irreversible,
    )


def permit_again(parts: Parts, subject: Subject, known: Known) -> str | None:
    """The permit of a known call, as long as it was not redeemed: one identifier, however often it is asked for."""
    if known.decision is None or known.permit_id is None:
        return None
    with parts.store.reader() as reader:
        if reader.document(REDEEMED, known.permit_id) is not None:
            return None
    return permit_of(parts, subject, known.decision, known.permit_id, mode=known.mode, irreversible=known.irreversible)


# Redeeming a permit at the gateway: once for the whole deployment, by the tool that it is for.
#
# (1) the permit is signed by a permit key that this log announced
# (2) the tool that presents it is the one that it is for, and asks about exactly this call, in time
# (3) neither its agent nor the mission of its call was stopped since
# (4) its identifier is used up, with a receipt; a second time is a conflict

ATTEMPTS = 4  # how often control data may move under one redemption

Steps = Generator[Unit, tuple[Recorded, ...], Permit]


class Redeeming:
    """Redeems permits over the parts of one deployment."""

    def __init__(self, parts: Parts, control: Control, participants: Sequence[Participant]):
        self._parts = parts
        self._control = control
        self._stands = asked_of(participants, "stands")

    def steps(
        self, principal: Principal, token: str, *, tool: str, arguments: dict[str, Any], server: str | None = None
    ) -> Steps:
        """The permit, used up now. Raises `PermitInvalid`: 403 where it does not cover this call, 409 where it is
        used, over or revoked. Without `server` the permit says to which namespace the tool belongs."""
        parts = self._parts
        # (1)
        with parts.store.reader() as reader:
            permit = read_permit(token, lambda kid: _permit_key(reader, kid))
        # (2)
        named = permit.server if server is None else server
        if not principal.may_call(named, tool):
            raise PermitInvalid("this credential does not speak for that tool", code="forbidden")
        check_permit(permit, tool=tool, server=named, arguments=canonical(arguments), now=parts.clock())
        for _ in range(ATTEMPTS):
            # (3)
            state = self._control.current()
            if state.stops(permit.sub) or (principal.agent is not None and state.stops(principal.agent)):
                raise PermitInvalid("the agent of this permit was stopped", code="permit_revoked", status=409)
            if not self._still_stands(permit, state.epoch):
                raise PermitInvalid("the mission of this permit was stopped", code="permit_revoked", status=409)
            # (4)
            unit = _redemption(permit, principal, state.epoch)
            try:
                recorded = yield unit
            except ControlMoved:
                continue
            except StoreConflict as error:
                raise PermitInvalid("this permit was used before", code="permit_redeemed", status=409) from error
            notify(
                parts.listeners,
                Event(kind="redemption", members={"permit_id": permit.jti, "tool": permit.tool}, recorded=recorded[0]),
            )
            return permit
        raise StoreUnavailable("the permit could not be redeemed under a stable configuration")

    def _still_stands(self, permit: Permit, epoch: int) -> bool:
        """Whether what let the call through, such as its mission, still stands."""
        with self._parts.store.reader() as reader:
            entry = reader.entry_by_id(permit.decision_id)
            if entry is None:
                return False
            decision = orjson.loads(entry.body)
            return all(stands(reader, decision, epoch) for stands in self._stands)


def _redemption(permit: Permit, principal: Principal, epoch: int) -> Unit:
    members: dict[str, Any] = {
        "kind": "redemption",
        "receipt_id": new_id(),
        "parent": permit.decision_id,
        "principal": principal.id,
        "agent": permit.sub,
        "call_id": permit.call_id,
        "tool": permit.tool,
        "permit_id": permit.jti,
        "action": "permit_redeemed",
    }
    if permit.session:
        members["session"] = permit.session
    if permit.server is not None:
        members["server"] = permit.server
    document = Document(collection=REDEEMED, key=permit.jti, version=1, body=orjson.dumps(permit.exp))

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(REDEEMED, permit.jti) is not None:
            raise StoreConflict("the permit was used before")
        transaction.put_document(document)
        return ()

    return Unit(drafts=(Draft(members=members),), apply=apply, epoch=epoch)


def _permit_key(reader: Reader, kid: str) -> bytes | None:
    document = reader.document(KEYS, kid)
    if document is None:
        return None
    described = orjson.loads(document.body)
    return base64.b64decode(described["public"]) if described["purpose"] == "permit" else None
