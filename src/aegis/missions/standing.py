"""What a call's mission says at this moment, and what the decision takes from it.

(1) the session's mission is found; a call without one has none
(2) its lineage is verified, once for each control epoch
(3) the call's proof is checked
(4) after the decision, in the transaction that records it: the session is looked at again, the
    sequence number is used, budgets are taken. What moved meanwhile refuses the record, and the
    call is decided anew on what is true now.
"""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

import orjson

from aegis.context.sessions import session_key
from aegis.core.mission import Declaration
from aegis.core.outcome import Reason
from aegis.core.ports import Reader
from aegis.core.times import MICROS
from aegis.errors import MissionInvalid
from aegis.gate.control import ControlState
from aegis.gate.participants import DecisionAttempt, Participant, ResultAttempt, ResultPart, refuse
from aegis.gate.parts import Parts
from aegis.gate.permits import KEYS
from aegis.gate.record import Subject
from aegis.missions import ledgers, registry, status
from aegis.missions.deciding import Attended, Lineage, MissionMemory
from aegis.missions.holder import check_call_proof
from aegis.missions.registry import MissionSession, load_lineage
from aegis.missions.results import attend_result
from aegis.missions.status import IssuerFor, IssuerKey
from aegis.policy.mission import Balance, MissionView, Proof, Status, compile_mission
from aegis.policy.model import Evaluation
from aegis.policy.policy import Policy

MAX_CACHED: Final = 1_024  # lineages kept compiled: bounds memory against many missions


class Missions(Participant):
    """Finds and verifies the missions of calls, over the parts of one deployment."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.Lock()
        self._lineages: OrderedDict[tuple[str, int, str], Lineage] = OrderedDict()
        self._memory = MissionMemory()

    def view(self, asked: DecisionAttempt) -> Attended | Evaluation | None:
        """The call's mission; a new call is shown what this process remembers of it, if that is enough."""
        subject, known = asked.subject, asked.known
        if not subject.session or subject.worker is not None:
            return None
        if known is None and asked.charge:
            recalled = self.recall(subject, asked.state, asked.policy)
            if recalled is not None:
                return recalled
        taken = known is not None and known.decision is not None and known.decision.allowed
        try:
            return self.attend(subject, asked.state, asked.policy, repeats=known is not None, taken=taken)
        except MissionInvalid:
            return refuse("mission", Reason.MISSION_INVALID)

    def recall(self, subject: Subject, state: ControlState, policy: Policy) -> Attended | None:
        """The mission of a call's session as this process remembers it, or `None` where the store must say.

        What the store alone knows is the standing of missions that refer to a status list.
        """
        if not subject.session:
            return None
        key = session_key(subject.principal, subject.session)
        session = self._memory.session(key)
        lineage = None if session is None else self._lineages.get((session.mission_id, state.epoch, policy.digest))
        if session is None or lineage is None or lineage.is_listed:
            return None
        own = ledgers.ledgers_of(
            lineage.ceilings, agent=subject.agent, principal=subject.principal.id, session=subject.session
        )
        balances = self._memory.balances(own)
        if balances is None:
            return None
        return self._attended(
            subject, key, session, lineage, lineage.standing, own, balances, policy, repeats=False, recalled=True
        )

    def attend(
        self, subject: Subject, state: ControlState, policy: Policy, *, repeats: bool = False, taken: bool = False
    ) -> Attended | None:
        """The mission of a call's session at this moment, or `None` where it has none.

        `repeats` says that the call is known: its proof was used then, and runs nothing again; `taken`
        that it was released before, and took from its budgets then.
        """
        if not subject.session:
            return None
        key = session_key(subject.principal, subject.session)
        now = self._parts.clock()
        with self._parts.store.reader() as reader:
            found = registry.find_session(reader, key)  # (1)
            if found is None:
                return None
            session = found[0]
            lineage = self.lineage(reader, session.mission_id, state.epoch, policy)  # (2)
            own = ledgers.ledgers_of(
                lineage.ceilings, agent=subject.agent, principal=subject.principal.id, session=subject.session
            )
            balances = () if taken else ledgers.balances(reader, own)
            standing = _standing(reader, lineage, now)
        return self._attended(
            subject, key, session, lineage, standing, () if taken else own, balances, policy, repeats=repeats
        )

    def _attended(
        self,
        subject: Subject,
        key: str,
        session: MissionSession,
        lineage: Lineage,
        standing: Status,
        own: tuple[ledgers.MissionLedger, ...],
        balances: tuple[Balance, ...],
        policy: Policy,
        *,
        repeats: bool,
        recalled: bool = False,
    ) -> Attended:
        acting = lineage.declarations[-1]
        proof, number = self._proof(subject, session, acting, policy, repeats=repeats)  # (3)
        return Attended(
            view=MissionView(
                lineage=lineage.compiled,
                status=standing,
                opened_at=session.opened_at,
                evidence=lineage.evidence,
                recourse=frozenset(session.recourse),
                seen=frozenset(session.seen),
                denials=session.denials,
                proof=proof,
                session_proof=session.proof,
                task=session.task,
                manifest=session.manifest,
                balances=balances,
            ),
            key=key,
            lineage=lineage,
            tool=(subject.call.server, subject.call.tool),
            number=number,
            ledgers=own,
            memory=self._memory,
            recalled=recalled,
        )

    def lineage(self, reader: Reader, mission_id: str, epoch: int, policy: Policy) -> Lineage:
        """The verified lineage of a mission; one that does not verify any more stands as `unknown`.

        Raises `MissionInvalid` where nothing of it can be shown.
        """
        known = (mission_id, epoch, policy.digest)
        lineage = self._lineages.get(known)
        if lineage is not None:
            return lineage
        declarations, state = load_lineage(reader, mission_id, self.trusted(reader, policy))
        lineage = Lineage(
            declarations=declarations,
            compiled=tuple(compile_mission(one) for one in declarations),
            standing=state,
            ceilings=ledgers.ceilings_of(declarations),
        )
        with self._lock:
            self._lineages[known] = lineage
            while len(self._lineages) > MAX_CACHED:
                self._lineages.popitem(last=False)
        return lineage

    def result(self, asked: ResultAttempt) -> ResultPart:
        """Whose word a result is, and its mission."""
        return attend_result(self._parts, self.lineage, asked)

    def stands(self, reader: Reader, decision: Mapping[str, Any], epoch: int) -> bool:
        """Whether nobody stopped the mission of a decision, or one above it, at this moment."""
        mission_id = decision.get("mission_id")
        if mission_id is None:
            return True
        try:
            lineage = self.lineage(reader, mission_id, epoch, self._parts.policy.current)
        except MissionInvalid:
            return False
        return _standing(reader, lineage, self._parts.clock()) == "active"

    def trusted(self, reader: Reader, policy: Policy) -> IssuerFor:
        """The keys whose missions count: those of configured issuers, and this deployment's own."""

        def issuer_for(kid: str) -> IssuerKey | None:
            known = policy.missions.issuers.get(kid)
            if known is not None:
                return known
            document = reader.document(KEYS, kid)
            if document is None:
                return None
            described = orjson.loads(document.body)
            if described["purpose"] != "mission":
                return None
            return IssuerKey(base64.b64decode(described["public"]), None)

        return issuer_for

    @staticmethod
    def _proof(
        subject: Subject, session: MissionSession, acting: Declaration, policy: Policy, *, repeats: bool
    ) -> tuple[Proof, int | None]:
        token = subject.call.proof
        if token is None:
            return "none", None
        try:
            number = check_call_proof(
                token,
                acting,
                audience=policy.missions.audience,
                session=subject.session,
                digest=subject.request_digest,
                window=None if repeats else session.window,
            )
        except MissionInvalid:
            return "invalid", None
        return "valid", None if repeats else number


_WORST: Final[tuple[Status, ...]] = ("active", "unknown", "suspended", "revoked")


def _standing(reader: Reader, lineage: Lineage, now: int) -> Status:
    """The worst that this deployment or a status list says of a lineage at `now` (microseconds since the epoch)."""
    listed = status.standings(reader, lineage.declarations, now // MICROS)
    return max((lineage.standing, *listed), key=_WORST.index)
