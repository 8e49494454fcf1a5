"""What a result means for its mission: whose word it is and by what signature, what it led to, and what it cost.

Whose word a result is counts without a mission, too: a tool with a key here must sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Struct

from aegis.context.sessions import session_key
from aegis.core.canonical import canonical, sha256, stream_result
from aegis.core.json import convert
from aegis.core.mission import Count, Currency, Recourse, Sha256, Text
from aegis.core.outcome import Verdict
from aegis.core.ports import Reader, Signer, Transaction
from aegis.errors import MissionInvalid
from aegis.gate.participants import ResultAttempt, ResultPart, ResultRecord
from aegis.gate.parts import Parts
from aegis.missions import ledgers, registry, status
from aegis.missions.deciding import Lineage, SessionMoved, settings_under
from aegis.policy.guards.base import Provenance as Provenance_
from aegis.policy.guards.budget import is_priced
from aegis.policy.mission import MissionView
from aegis.policy.model import ResultEvaluation
from aegis.policy.policy import Policy

# A tool's own signature over a result, and over what the call really cost.


class Usage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a call really cost: money in minor units by currency."""

    money: Annotated[dict[Currency, Count], msgspec.Meta(max_length=16)] = {}
    tokens: Count = 0

    def cost(self) -> dict[str, int]:
        """The amounts by the names of ledgers."""
        return {"tokens": self.tokens, **{f"money.{name}": amount for name, amount in self.money.items()}}


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of a signed result; `result` is the digest of its canonical JSON."""

    decision_id: Text
    result: Sha256
    usage: Usage | None = None


def sign_stream(signer: Signer, *, decision_id: str, content: bytes, usage: Usage | None = None) -> str:
    """The token by which a tool signs a result that it streamed, once all of `content` was sent."""
    result = stream_result(size=len(content), digest=sha256(content))
    return sign_result(signer, decision_id=decision_id, result_digest=sha256(canonical(result)), usage=usage)


def sign_result(signer: Signer, *, decision_id: str, result_digest: str, usage: Usage | None = None) -> str:
    """The token by which a tool signs one result."""
    claims = Provenance(decision_id=decision_id, result=result_digest, usage=usage)
    return status.sign(signer, status.PROVENANCE, orjson.dumps(msgspec.to_builtins(claims)))


def check_provenance(token: str, public: bytes, *, decision_id: str, result_digest: str) -> Provenance:
    """What the tool signed about exactly this result; raises `MissionInvalid` otherwise."""
    try:
        claims = convert(status.verify(token, status.PROVENANCE, lambda kid: public), Provenance)
    except msgspec.ValidationError as error:
        raise MissionInvalid("the provenance is malformed", member="provenance") from error
    if claims.decision_id != decision_id or claims.result != result_digest:
        raise MissionInvalid("the provenance is about another result", member="provenance")
    return claims


Write = Callable[[Transaction], None]

_RULE = "postcondition-"


class ResultOrigin(Struct, frozen=True, kw_only=True):
    """Whose word a result is, and the real cost that its signature covers."""

    provenance: Provenance_
    must_sign: bool
    proved: Mapping[str, int] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SignedResult(ResultPart):
    """One result, and whose word it is."""

    origin: ResultOrigin

    def shows(self) -> Mapping[str, Any]:
        return {"provenance": self.origin.provenance, "must_sign": self.origin.must_sign}

    def members(self, evaluation: ResultEvaluation) -> Mapping[str, Any]:
        if self.origin.provenance == "unsigned" and not self.origin.must_sign:
            return {}
        return {"provenance": {"signature": self.origin.provenance}}


@dataclass(frozen=True, kw_only=True, slots=True)
class AttendedResult(SignedResult):
    """One result under a mission: what the guards are shown, and what recording it will do.

    A further text of a result settles nothing: the result itself settled what the mission counts.
    """

    view: MissionView
    key: str
    ledgers: tuple[ledgers.MissionLedger, ...]
    reserved: Mapping[str, int]
    said: Mapping[str, Any]
    further: bool

    def shows(self) -> Mapping[str, Any]:
        return {**SignedResult.shows(self), "mission": self.view}

    def settings(self, of_policy: Mapping[str, str]) -> Mapping[str, str]:
        return of_policy if self.further else settings_under(self.view, of_policy)

    def members(self, evaluation: ResultEvaluation) -> Mapping[str, Any]:
        signed = SignedResult.members(self, evaluation)
        return signed if self.further else {**signed, **self.said}

    def look(self, transaction: Transaction, record: ResultRecord) -> Write | None:
        return None if self.further else self.prepare(transaction, record.evaluation)

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
    parts: Parts, lineage_of: Callable[[Reader, str, int, Policy], Lineage], asked: ResultAttempt
) -> SignedResult:
    """Whose word a result is, and the mission of its call at this moment, where it had one.

    Raises `MissionInvalid` where the mission does not verify any more.
    """
    policy, principal, body, session = asked.policy, asked.principal, asked.body, asked.session
    origin = origin_of(
        policy,
        server=asked.server,
        tool=asked.tool,
        token=asked.token,
        decision_id=asked.decision_id,
        digest=sha256(asked.data),
    )
    mission_id = body.get("mission_id")
    if mission_id is None:
        return SignedResult(origin=origin)
    key = session_key(principal, session)
    with parts.store.reader() as reader:
        found = registry.find_session(reader, key)
        if found is None:
            raise MissionInvalid("the session of the call is not there", member="session", status=409)
        lineage = lineage_of(reader, mission_id, reader.head().epoch, policy)
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
        said=members,
        further=asked.further,
    )
