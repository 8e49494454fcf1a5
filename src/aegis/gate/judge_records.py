"""Judge runs on record: a receipt when one starts, a receipt when it ends, and what was spent.

A start is durable before the judge runs. An end goes on record with whatever this call has recorded next: the start
of another judge, or the decision. A run that was started stands in the store until then; whatever a crash left there
is ended as `lost` once its time is over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from aegis.audit.writer import Unit
from aegis.core.digest import SALT_BYTES, payload_commitment
from aegis.core.judging import Ceiling, JudgeRules, JudgeSpec, Validator
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.gate.commits import Commits
from aegis.gate.ids import new_id
from aegis.gate.judge_ends import Ends, with_ends
from aegis.gate.parts import Parts
from aegis.judges.model import Ran, Spent

RUNS: Final = "judge-runs"
SPENT: Final = "judge-costs"
GRACE_S: Final = 5.0  # beyond its deadline: how long a run may take to put its end on record
_DAY: Final = 86_400 * MICROS


@dataclass(frozen=True, kw_only=True)
class JudgeRecords:
    """Records the runs about one call; `about` are the members that name the call. Used on the judges' loop."""

    parts: Parts
    commits: Commits
    about: dict[str, Any]
    policy_digest: str
    ends: Ends
    running: set[str] = field(default_factory=set)

    async def started(self, validator: Validator, judge: JudgeSpec, payload: dict[str, Any]) -> str:
        """Record the start and return the run's id; raises `StoreError`."""
        run_id, now = new_id(), self.parts.clock()
        until = now + int((min(validator.seconds, judge.limits.seconds) + GRACE_S) * MICROS)
        members = {**self._members("started", judge, validator), "receipt_id": run_id}
        kept = {"until": until, "members": {**members, "parent": run_id}}
        document = Document(collection=RUNS, key=run_id, version=1, state="running", body=orjson.dumps(kept))

        def apply(transaction: Transaction) -> Sequence[Draft]:
            transaction.put_document(document)
            return ()

        unit = Unit(drafts=(_sealed(members, payload),), apply=apply)
        await self.commits.append(with_ends(unit, self.ends.take()))
        self.running.add(run_id)
        return run_id

    async def ended(self, validator: Validator, judge: JudgeSpec, ran: Ran) -> str:
        """Record the end with what was said and spent, at once where others of the panel still run.

        Returns the id of its receipt; raises `StoreError`.
        """
        receipt_id = new_id()
        members = {**self._members("ended", judge, validator), "receipt_id": receipt_id, "parent": ran.run_id}
        members["judge"] = {**members["judge"], **_came_to(ran)}
        payload = {
            "detail": ran.detail,
            "result": None if ran.result is None else ran.result.to_wire(),
            "transcript": list(ran.transcript),
        }
        keys = spending_keys(judge.name, self.about)
        day = self.parts.clock() // _DAY

        draft = _sealed(members, payload)

        def end(transaction: Transaction) -> Sequence[Draft]:
            if transaction.document(RUNS, ran.run_id) is None:  # it was ended as lost meanwhile
                return ()
            transaction.delete_document(RUNS, ran.run_id)
            for key in keys if ran.spent != Spent() else ():
                _spend(transaction, key, day, ran.spent)
            return (draft,)

        self.ends.keep(end)
        self.running.discard(ran.run_id)
        if self.running or ran.cause == "cancelled":
            await self.ends.flush()
        return receipt_id

    def _members(self, action: str, judge: JudgeSpec, validator: Validator) -> dict[str, Any]:
        named = {"name": judge.name, "version": judge.version, "validator": validator.name}
        return {
            "kind": "judge",
            "action": action,
            "policy_digest": self.policy_digest,
            "judge": named,
            **self.about,
        }


def spending_keys(judge: str, about: dict[str, Any]) -> tuple[str, ...]:
    """Under which names tokens and cost of a run are counted."""
    session = [f"session:{orjson.dumps([about['principal'], about['session']]).decode()}"] if "session" in about else []
    return (f"judge:{judge}", f"agent:{about['agent']}", *session)


def is_spent_out(parts: Parts, reader: Reader, rules: JudgeRules, judge: str, about: dict[str, Any]) -> bool:
    """Whether a ceiling for today is reached."""
    day = parts.clock() // _DAY
    for key in spending_keys(judge, about):
        kind = key.partition(":")[0]
        ceiling = next((one for name, one in rules.ceilings.items() if name == kind), Ceiling())
        if ceiling == Ceiling():
            continue
        document = reader.document(SPENT, key)
        spent = {} if document is None else orjson.loads(document.body)
        if spent.get("day") != day:
            continue
        if ceiling.tokens is not None and spent["tokens_in"] + spent["tokens_out"] >= ceiling.tokens:
            return True
        if ceiling.cost is not None and spent["cost"] >= ceiling.cost:
            return True
    return False


def end_lost(run: Document, now: int) -> Unit | None:
    """The unit that ends a run which a crash left behind, or `None` while it may still end by itself."""
    kept = orjson.loads(run.body)
    if now < kept["until"]:
        return None
    members = {**kept["members"], "action": "ended", "receipt_id": new_id()}
    members["judge"] = {**members["judge"], "cause": "lost"}

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(RUNS, run.key) is None:  # somebody else ended it meanwhile
            return ()
        transaction.delete_document(RUNS, run.key)
        return (Draft(members=members),)

    return Unit(apply=apply)


def _spend(transaction: Transaction, key: str, day: int, spent: Spent) -> None:
    document = transaction.document(SPENT, key)
    before = {} if document is None else orjson.loads(document.body)
    same_day = before.get("day") == day
    body = {"day": day}
    for name in ("tokens_in", "tokens_out", "cost"):
        body[name] = (before[name] if same_day else 0) + getattr(spent, name)
    version = 1 if document is None else document.version + 1
    transaction.put_document(Document(collection=SPENT, key=key, version=version, body=orjson.dumps(body)))


def _came_to(ran: Ran) -> dict[str, Any]:
    """Of floats, a receipt holds their thousandths."""
    came: dict[str, Any] = {
        "cause": ran.cause,
        "ms": round(ran.seconds * 1_000),
        "tokens_in": ran.spent.tokens_in,
        "tokens_out": ran.spent.tokens_out,
        "cost": ran.spent.cost,
    }
    if ran.result is not None:
        came["score"] = round(ran.result.score * 1_000)
        came["confidence"] = round(ran.result.confidence * 1_000)
    return came


def _sealed(members: dict[str, Any], payload: dict[str, Any]) -> Draft:
    salt, data = os.urandom(SALT_BYTES), json.dumps(payload).encode("utf-8")  # integers may have any size
    return Draft(members={**members, "payload_commitment": payload_commitment(salt, data)}, payload=data, salt=salt)
