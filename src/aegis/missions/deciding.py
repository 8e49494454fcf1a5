"""One call under its mission: what the guards are shown, and what recording the decision writes.

In the transaction that records the decision the session is looked at again, the sequence number is used
and budgets are taken. What moved meanwhile refuses the record, and the call is decided anew on what is
true now.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from aegis.core.mission import Declaration, stricter
from aegis.core.outcome import EvidencePolicy, Outcome
from aegis.core.ports import Transaction
from aegis.core.receipt import Draft
from aegis.errors import StoreConflict
from aegis.gate.participants import DecisionRecord, Part, Write
from aegis.missions import ledgers, registry
from aegis.missions.ledgers import LedgerAccount, MissionLedger
from aegis.missions.registry import MissionSession
from aegis.policy.guards.budget import only
from aegis.policy.mission import Balance, CompiledMission, MissionView, Status
from aegis.policy.model import MISSION_GUARDS, Evaluation
from aegis.policy.policy import COUNTING

# What a process remembers of sessions under missions, so that a call need not read the store before it is decided.
#
# What is remembered may let a call through, because the transaction that records the call looks again and refuses
# the record where anything moved. It refuses nothing by itself: a call that would be refused is judged again on
# what the store says.

MAX_SESSIONS: Final = 16_384
MAX_LEDGERS: Final = 65_536
_UNSEEN: Final = (None, 0)


class MissionMemory:
    """Sessions and balances as this process last wrote or read them; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, tuple[MissionSession, int]] = OrderedDict()
        self._accounts: OrderedDict[str, tuple[LedgerAccount, Mapping[str, int]]] = OrderedDict()

    def session(self, key: str) -> MissionSession | None:
        """The session of that key as last seen, or `None`."""
        return self._sessions.get(key, _UNSEEN)[0]

    def session_at(self, key: str) -> tuple[MissionSession, int] | tuple[None, int]:
        """The session of that key as last seen, and the version that it has in the store then."""
        return self._sessions.get(key, _UNSEEN)

    def balances(self, ledgers: Sequence[MissionLedger]) -> tuple[Balance, ...] | None:
        """What each ledger has left as last seen; `None` where one was not seen."""
        found: list[Balance] = []
        for ledger in ledgers:
            known = self._accounts.get(ledger.name)
            if known is None:
                return None
            found.append(Balance(name=ledger.name, ceilings=ledger.ceilings, used=known[1]))
        return tuple(found)

    def accounts(self, ledgers: Sequence[MissionLedger]) -> list[tuple[str, LedgerAccount]] | None:
        """Copies of ledgers as last written, with the versions that they have in the store then.

        `None` where one was not seen.
        """
        found: list[tuple[str, LedgerAccount]] = []
        for ledger in ledgers:
            known = self._accounts.get(ledger.name)
            if known is None:
                return None
            found.append((ledger.name, known[0].copy()))
        return found

    def keep(
        self, key: str, session: MissionSession, version: int, accounts: Sequence[tuple[str, LedgerAccount]]
    ) -> None:
        """Remember a session, the version that it has now, and accounts that were just written, whose
        versions this moves; they are the memory's own from now on. The oldest is forgotten first."""
        with self._lock:
            self._sessions[key] = (session, version)
            if len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
            for name, account in accounts:
                account.version += 1
                self._accounts[name] = (account, account.used())
            while len(self._accounts) > MAX_LEDGERS:
                self._accounts.popitem(last=False)

    def forget(self, key: str, ledgers: Sequence[MissionLedger]) -> None:
        """Read this session and its ledgers anew the next time."""
        with self._lock:
            self._sessions.pop(key, None)
            for ledger in ledgers:
                self._accounts.pop(ledger.name, None)


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


class Attended(Part, msgspec.Struct, frozen=True, kw_only=True):
    """One call under a mission: what the guards are shown, and what recording the decision will do.

    `recalled` says that the view is what this process remembers, and not what the store said just now.
    """

    view: MissionView
    key: str
    lineage: Lineage
    tool: tuple[str | None, str]
    number: int | None
    ledgers: tuple[ledgers.MissionLedger, ...]
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
        return settings_under(self.view, of_policy)

    def shows(self) -> Mapping[str, Any]:
        """The mission, for the guards that hold a call to it."""
        return {"mission": self.view}

    def is_doubtful(self, evaluation: Evaluation) -> bool:
        """What this process remembers lets calls through, and refuses none."""
        return self.recalled and stopped_by_mission(evaluation)

    def look(self, transaction: Transaction, record: DecisionRecord, *, last: bool) -> Write | None:
        """Look again at the session and its ledgers; `SessionMoved` or `BudgetMoved` where they moved."""
        try:
            if last and self._at_once(transaction, record.evaluation, runs=record.runs):
                return None
            return self._prepared(transaction, record.evaluation, runs=record.runs)
        except StoreConflict:
            self.drop()
            raise

    def _prepared(self, transaction: Transaction, evaluation: Evaluation, *, runs: bool) -> Write:
        """The write that follows; `runs` says that the call is released by this record."""
        found = registry.find_session(transaction, self.key)
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
        accounts: Sequence[tuple[str, ledgers.LedgerAccount]] = ()
        if runs:
            reads = self._classes()
            if not reads <= frozenset(session.seen):
                after = msgspec.structs.replace(after, seen=tuple(sorted({*session.seen, *reads})))
            if self.ledgers:
                accounts = ledgers.taken(transaction, self.ledgers, evaluation.cost, enforced=not view.attests)

        def write(transaction: Transaction) -> Sequence[Draft]:
            if after is not session:
                registry.write(transaction, self.key, after, version)
            ledgers.write(transaction, accounts)
            self.memory.keep(self.key, after, version + (after is not session), accounts)
            return ()

        return write

    def drop(self) -> None:
        """Read the session and its ledgers anew the next time."""
        self.memory.forget(self.key, self.ledgers)

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
                registry.write(transaction, self.key, after, version)
            # (3)
            ledgers.write(transaction, accounts)
        except StoreConflict:
            return False
        self.memory.keep(self.key, after, version + (after is not session), accounts)
        return True

    def _classes(self) -> frozenset[str]:
        """The classes whose data the session holds once this call ran."""
        return frozenset(name for one in self.lineage.compiled for name in one.classes_of(*self.tool))


def stopped_by_mission(evaluation: Evaluation) -> bool:
    """Whether the guards of missions, and no guard that counts, are why a call is not released."""
    if evaluation.combined.outcome <= Outcome.SANITIZE:
        return False
    reports = evaluation.combined.reports
    return not any(one.guard in COUNTING and one.outcome > Outcome.SANITIZE for one in reports) and any(
        one.guard in MISSION_GUARDS and (one.outcome > Outcome.SANITIZE or one.missing) for one in reports
    )


def mission_of(parts: Iterable[Part]) -> Attended | None:
    """The mission among the parts of a call, or `None`."""
    return next((part for part in parts if isinstance(part, Attended)), None)


def settings_under(view: MissionView, of_policy: Mapping[str, str]) -> Mapping[str, str]:
    """Mode and evidence policy under a mission: the stricter of the deployment's and every mission's."""
    evidence: EvidencePolicy = of_policy["insufficient_evidence"]  # type: ignore[assignment]
    return {
        "mode": "attest" if view.attests else of_policy["mode"],
        "insufficient_evidence": stricter(evidence, view.evidence),
    }
