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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec
import orjson

from aegis.audit.writer import Apply
from aegis.core.mission import Declaration, stricter
from aegis.core.outcome import EvidencePolicy, Outcome
from aegis.core.ports import Reader, Transaction
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.errors import MissionInvalid, StoreConflict
from aegis.gate.control import ControlState
from aegis.gate.mission_memory import MissionMemory
from aegis.gate.parts import Parts
from aegis.gate.record import Subject
from aegis.gate.sessions import session_key
from aegis.guards.budget import only
from aegis.guards.mission_view import Balance, CompiledMission, MissionView, Proof, Status, compile_mission
from aegis.missions import ledgers, sessions, status
from aegis.missions.jws import KeyFor
from aegis.missions.possession import check_call_proof
from aegis.missions.registry import load_lineage
from aegis.missions.sessions import MissionSession
from aegis.pipeline.available import MISSION_GUARDS
from aegis.pipeline.model import Evaluation
from aegis.pipeline.run import COUNTING, Policy

KEYS: Final = "keys"
MAX_CACHED: Final = 1_024  # lineages kept compiled: bounds memory against many missions

Write = Callable[[Transaction], None]


class SessionMoved(StoreConflict):
    """The session changed in a way that matters to the call: decide anew."""


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """The missions from the root to one that acts, verified under one control epoch."""

    declarations: tuple[Declaration, ...]
    compiled: tuple[CompiledMission, ...]
    standing: Status
    ceilings: tuple[ledgers.Ceilings, ...]

    @cached_property
    def is_listed(self) -> bool:
        """Whether a status list elsewhere says something about one of them."""
        return any(one.revocation is not None for one in self.declarations)

    @cached_property
    def is_steady(self) -> bool:
        """Whether a session stays as it was opened: no result, refusal or class of data changes it."""
        return all(
            one.max_denials is None
            and not one.flow.classes
            and all(what == "withhold" for condition in one.postconditions for what in condition.recourse)
            for one in self.declarations
        )

    @cached_property
    def evidence(self) -> EvidencePolicy:
        """The strictest evidence policy of them all."""
        return stricter(*(one.insufficient_evidence for one in self.declarations))

    @cached_property
    def counted(self) -> frozenset[str]:
        """The names of everything that some ceiling counts."""
        kinds = (ceilings for one in self.ceilings for ceilings in (one.over_all, one.of_agent, one.of_session))
        return frozenset(name for ceilings in kinds for name in ceilings)

    @cached_property
    def ids(self) -> list[str]:
        """Their ids, from the root."""
        return [one.mission_id for one in self.declarations]


class Attended(msgspec.Struct, frozen=True, kw_only=True):
    """One call under a mission: what the guards are shown, and what recording the decision will do.

    `recalled` says that the view is what this process remembers, and not what the store said just now.
    """

    view: MissionView
    key: str
    lineage: Lineage
    tool: tuple[str | None, str]
    number: int | None
    ledgers: tuple[ledgers.Ledger, ...]
    memory: MissionMemory
    recalled: bool = False

    def members(self, evaluation: Evaluation) -> dict[str, Any]:
        """What the receipt says of the mission."""
        found: dict[str, Any] = {"mission_id": self.view.acting.mission_id, "lineage": self.lineage.ids}
        if evaluation.cost:
            found["budget"] = {"cost": only(evaluation.cost, self.lineage.counted if self.ledgers else ())}
        return found

    def settings(self, of_policy: Mapping[str, str]) -> Mapping[str, str]:
        """Mode and evidence policy in force for this call: the stricter of the deployment's and every mission's."""
        evidence: EvidencePolicy = of_policy["insufficient_evidence"]  # type: ignore[assignment]
        return {
            "mode": "attest" if self.view.attests else of_policy["mode"],
            "insufficient_evidence": stricter(evidence, self.view.evidence),
        }

    def prepare(self, transaction: Transaction, evaluation: Evaluation, *, runs: bool) -> Write:
        """Look again, inside the recording transaction, and return the write that follows.

        `runs` says that the call is released by this record. Raises `StoreConflict` where the call has
        to be decided anew; nothing was written then.
        """
        found = sessions.find(transaction, self.key)
        if found is None:
            raise SessionMoved("the session is not there any more")
        session, version = found
        view = self.view
        if frozenset(session.recourse) != view.recourse or not frozenset(session.seen) <= view.seen:
            raise SessionMoved("the session changed meanwhile")
        after = session
        if self.number is not None:
            if session.window.is_used(self.number):
                raise SessionMoved("the sequence number was used meanwhile")
            after = msgspec.structs.replace(after, window=session.window.using(self.number))
        limits = [one.max_denials for one in self.lineage.declarations if one.max_denials is not None]
        if evaluation.combined.outcome is Outcome.BLOCK and limits:
            after = msgspec.structs.replace(after, denials=session.denials + 1)
        elif limits and session.denials >= min(limits) > view.denials:
            raise SessionMoved("the session was refused as often as its mission allows")
        accounts: Sequence[tuple[str, ledgers.Account]] = ()
        if runs:
            reads = self._classes()
            if not reads <= frozenset(session.seen):
                after = msgspec.structs.replace(after, seen=tuple(sorted({*session.seen, *reads})))
            if self.ledgers:
                accounts = ledgers.taken(transaction, self.ledgers, evaluation.cost, enforced=not view.attests)

        def write(transaction: Transaction) -> None:
            if after is not session:
                sessions.write(transaction, self.key, after, version)
            ledgers.write(transaction, accounts)
            self.memory.keep(self.key, after, version + (after is not session), accounts)

        return write

    def forget(self) -> None:
        """Read the session and its ledgers anew the next time."""
        self.memory.forget(self.key, self.ledgers)

    def with_writes(self, apply: Apply | None, evaluation: Evaluation, *, runs: bool) -> Apply:
        """`apply` and the writes of `prepare` as one: everything is looked at before anything is written."""

        def both(transaction: Transaction) -> Sequence[Draft]:
            try:
                if apply is None and self._at_once(transaction, evaluation, runs=runs):
                    return ()
                write = self.prepare(transaction, evaluation, runs=runs)
            except StoreConflict:
                self.forget()
                raise
            drafts = () if apply is None else apply(transaction)
            write(transaction)
            return drafts

        return both

    def _at_once(self, transaction: Transaction, evaluation: Evaluation, *, runs: bool) -> bool:
        """Record a call of a session that results cannot change, from what this process remembers.

        (1) what would be written is worked out in memory
        (2) that every document still has the version that this process gave it is looked at for all but
            the first; the write of the first says so itself
        (3) the rest is written

        Says no, with nothing written, where that does not hold, and where there is more to do.
        """
        if not self.recalled or not self.lineage.is_steady:
            return False
        used = self.ledgers if runs else ()
        if not used and self.number is None:
            return True
        # (1)
        session, version = self.memory.session_at(self.key)
        accounts = self.memory.accounts(used)
        if session is None or accounts is None:
            return False
        after = session
        if self.number is not None:
            if session.window.is_used(self.number):
                return False
            after = msgspec.structs.replace(session, window=session.window.using(self.number))
        try:
            for ledger, (_, account) in zip(used, accounts, strict=True):
                ledgers.charge(account, ledger, evaluation.cost, enforced=not self.view.attests)
            # (2)
            looked_at = accounts if after is not session else accounts[1:]
            if any(ledgers.version(transaction, name) != account.version for name, account in looked_at):
                return False
            if after is not session:
                sessions.write(transaction, self.key, after, version)
            # (3)
            ledgers.write(transaction, accounts)
        except StoreConflict:
            return False
        self.memory.keep(self.key, after, version + (after is not session), accounts)
        return True

    def _classes(self) -> frozenset[str]:
        """The classes whose data the session holds once this call ran."""
        return frozenset(name for one in self.lineage.compiled for name in one.classes_of(*self.tool))


class Missions:
    """Finds and verifies the missions of calls, over the parts of one deployment."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self._lock = threading.Lock()
        self._lineages: OrderedDict[tuple[str, int, str], Lineage] = OrderedDict()
        self._memory = MissionMemory()

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
            found = sessions.find(reader, key)  # (1)
            if found is None:
                return None
            session = found[0]
            lineage = self.lineage(reader, session.mission_id, state.epoch, policy)  # (2)
            declared = lineage.declarations
            own = ledgers.ledgers_of(
                lineage.ceilings, agent=subject.agent, principal=subject.principal.id, session=subject.session
            )
            balances = () if taken else ledgers.balances(reader, own)
            standing = _worst(lineage.standing, *(status.standing(reader, one, now // MICROS) for one in declared))
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
        own: tuple[ledgers.Ledger, ...],
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

    def trusted(self, reader: Reader, policy: Policy) -> KeyFor:
        """The keys whose missions count: those of configured issuers, and this deployment's own."""

        def key_for(kid: str) -> bytes | None:
            known = policy.missions.issuers.get(kid)
            if known is not None:
                return known
            document = reader.document(KEYS, kid)
            if document is None:
                return None
            described = orjson.loads(document.body)
            if described["purpose"] != "mission":
                return None
            return base64.b64decode(described["public"])

        return key_for

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


def stopped_by_mission(evaluation: Evaluation) -> bool:
    """Whether the guards of missions, and no guard that counts, are why a call is not released."""
    if evaluation.combined.outcome <= Outcome.SANITIZE:
        return False
    reports = evaluation.combined.reports
    return not any(one.guard in COUNTING and one.outcome > Outcome.SANITIZE for one in reports) and any(
        one.guard in MISSION_GUARDS and (one.outcome > Outcome.SANITIZE or one.missing) for one in reports
    )


_WORST: Final[tuple[Status, ...]] = ("active", "unknown", "suspended", "revoked")


def _worst(*standings: Status) -> Status:
    return max(standings, key=_WORST.index)
