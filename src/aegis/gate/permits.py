"""Minting permits: short-lived, signed, for exactly one call; and what they say."""

from __future__ import annotations

from typing import Any, Final

import orjson

from aegis.core.call import ToolCall
from aegis.core.decision import Decision
from aegis.core.times import MICROS
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.repeat import Known
from aegis.keys import jws
from aegis.keys.permits import LIFETIME_S, TYPE
from aegis.pipeline.model import Evaluation

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


def wants_permit(call: ToolCall, evaluation: Evaluation) -> bool:
    """Whether a permit is minted for a call that may run: the call asks, or its tool demands one."""
    return call.want_permit or (evaluation.entry is not None and evaluation.entry.permit)


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
