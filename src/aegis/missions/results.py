"""What a result means for its mission: whose word it is, what it led to, and what the call really cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from aegis.context.sessions import session_key
from aegis.core.mission import Recourse
from aegis.core.outcome import Verdict
from aegis.core.ports import Transaction
from aegis.core.principal import Principal
from aegis.errors import MissionInvalid
from aegis.gate.parts import Parts
from aegis.missions import ledgers, registry
from aegis.missions.deciding import SessionMoved
from aegis.missions.provenance import check_provenance
from aegis.missions.standing import Missions
from aegis.policy.guards.base import Provenance
from aegis.policy.guards.budget import is_priced
from aegis.policy.mission import MissionView
from aegis.policy.model import ResultEvaluation
from aegis.policy.policy import Policy

Write = Callable[[Transaction], None]

_RULE = "postcondition-"


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultOrigin:
    """Whose word a result is, and the real cost that its signature covers."""

    provenance: Provenance
    must_sign: bool
    proved: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AttendedResult:
    """One result under a mission: what the guards are shown, and what recording it will do."""

    view: MissionView
    key: str
    ledgers: tuple[ledgers.MissionLedger, ...]
    reserved: Mapping[str, int]
    origin: ResultOrigin
    members: Mapping[str, Any]

    def prepare(self, transaction: Transaction, evaluation: ResultEvaluation) -> Write:
        """Look at the session inside the recording transaction and return the write that follows."""
        found = registry.find_session(transaction, self.key)
        if found is None:
            raise SessionMoved("the session is not there any more")
        session, version = found
        recourse = {*session.recourse, *self.recourse(evaluation)}
        accounts: list[tuple[str, ledgers.LedgerAccount]] = []
        if self.reserved:
            accounts = ledgers.settled(transaction, self.ledgers, self.reserved, self.origin.proved)

        def write(transaction: Transaction) -> None:
            if recourse != set(session.recourse):
                after = msgspec.structs.replace(session, recourse=tuple(sorted(recourse)))
                registry.write(transaction, self.key, after, version)
            ledgers.write(transaction, accounts)

        return write

    def recourse(self, evaluation: ResultEvaluation) -> frozenset[Recourse]:
        """What follows for later calls from the conditions that this result failed."""
        if evaluation.combined.verdict is Verdict.COMPLIANT or self.view.attests:
            return frozenset()
        failed = {one.rule.removeprefix(_RULE) for one in evaluation.combined.findings if one.rule.startswith(_RULE)}
        return frozenset(
            what
            for compiled in self.view.lineage
            for condition in compiled.declaration.postconditions
            if condition.id in failed
            for what in condition.recourse
            if what != "withhold"
        )


def origin_of(
    policy: Policy, *, server: str | None, tool: str, token: str | None, decision_id: str, digest: str
) -> ResultOrigin:
    """Whose word the result of a tool is; a tool with a key here must sign."""
    public = policy.missions.tool_keys.find(server, tool)
    if token is None:
        return ResultOrigin(provenance="unsigned", must_sign=public is not None)
    if public is None:
        return ResultOrigin(provenance="invalid", must_sign=False)
    try:
        claims = check_provenance(token, public, decision_id=decision_id, result_digest=digest)
    except MissionInvalid:
        return ResultOrigin(provenance="invalid", must_sign=True)
    proved = None if claims.usage is None else claims.usage.cost()
    return ResultOrigin(provenance="valid", must_sign=True, proved=proved)


def attend_result(
    parts: Parts,
    missions: Missions,
    policy: Policy,
    principal: Principal,
    body: Mapping[str, Any],
    origin: ResultOrigin,
) -> AttendedResult | None:
    """The mission of a result's call at this moment, or `None` where it had none; `body` is the decision's receipt.

    Raises `MissionInvalid` where the mission does not verify any more.
    """
    mission_id, session = body.get("mission_id"), body.get("session", "")
    if mission_id is None:
        return None
    key = session_key(principal, session)
    with parts.store.reader() as reader:
        found = registry.find_session(reader, key)
        if found is None:
            raise MissionInvalid("the session of the call is not there", member="session", status=409)
        lineage = missions.lineage(reader, mission_id, reader.head().epoch, policy)
    cost = body.get("budget", {}).get("cost", {})
    reserved = {name: value for name, value in cost.items() if is_priced(name)}
    members: dict[str, Any] = {"mission_id": mission_id, "lineage": lineage.ids}
    if reserved:
        proved = origin.proved or {}
        refund = {
            name: value - proved.get(name, 0)
            for name, value in reserved.items()
            if origin.proved is not None and value > proved.get(name, 0)
        }
        members["budget"] = {"refund": refund}
    return AttendedResult(
        view=MissionView(
            lineage=lineage.compiled,
            status=lineage.standing,
            opened_at=found[0].opened_at,
            evidence=lineage.evidence,
            recourse=frozenset(found[0].recourse),
        ),
        key=key,
        ledgers=ledgers.ledgers_of(lineage.ceilings, agent=body["agent"], principal=principal.id, session=session),
        reserved=reserved,
        origin=origin,
        members=members,
    )
