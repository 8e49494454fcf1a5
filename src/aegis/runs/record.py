"""The receipts of a run: one when it starts, one for every stage and turn, one when it ends.

A receipt of kind `run` carries the run's id as its session, so that the trace of a run is the trace of a session. What
guards said stands in the receipt; labels and counts stand beside it, encrypted.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final, Literal

import orjson

from aegis.core.canonical import SALT_BYTES, payload_commitment
from aegis.core.outcome import Outcome, Reason
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.gate import Gate
from aegis.gate.events import new_id
from aegis.log.writer import Unit
from aegis.runs.rows import first_end, first_start

Action = Literal["start", "ingress", "route", "result", "turn", "egress", "pause", "resume", "end"]
GuardRow = dict[str, Any]
_FIRST: Final = {"start": first_start, "end": first_end}


class RunRecord:
    """Writes the receipts of runs. Raises `StoreError` where one cannot be written; the run then stops."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def write(
        self,
        run_id: str,
        principal: Principal,
        action: Action,
        *,
        outcome: Outcome = Outcome.ALLOW,
        reason: Reason = Reason.NONE,
        guards: Sequence[GuardRow] = (),
        details: dict[str, Any] | None = None,
    ) -> str:
        """Record one step; gives back the receipt's id.

        A run starts once and ends once: one that was taken up again adds nothing there.
        """
        salt, receipt_id = os.urandom(SALT_BYTES), new_id()
        payload = orjson.dumps({"action": action, **(details or {})})
        members: dict[str, Any] = {
            "kind": "run",
            "receipt_id": receipt_id,
            "principal": principal.id,
            "agent": principal.agent or principal.id,
            "session": run_id,
            "action": action,
            "decision": outcome.word,
            "reason": reason.value,
            "guards": [{name: row[name] for name in ("guard", "outcome", "rules")} for row in guards],
            "policy_digest": self._gate.parts.policy.current.digest,
            "payload_commitment": payload_commitment(salt, payload),
        }
        draft = Draft(members=members, payload=payload, salt=salt)
        first = _FIRST.get(action)
        if first is None:
            await self._gate.arecord(Unit(drafts=(draft,)))
        else:
            await self._gate.arecord(Unit(apply=lambda transaction: (draft,) if first(transaction, run_id) else ()))
        return receipt_id
