"""Rules of missions over a log, offline: lineage, tools, effects, times, standing and budgets.

What is believed is what the log's own key announced: the keys of missions that this deployment
signed. Missions of other issuers are read as the log shows them, and are named as not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from aegis.audit.breaks import Break, BreakKind
from aegis.audit.records import RELEASED
from aegis.audit.trust import public_of
from aegis.core.mission import Declaration
from aegis.core.names import Selector
from aegis.core.times import MICROS, from_rfc3339
from aegis.errors import LogInvalid, MissionInvalid
from aegis.guards.budget import is_priced
from aegis.keys.jws import IssuerKey
from aegis.missions import jws
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import read_declaration, verify_mission
from aegis.missions.ledgers import ceilings_of, ledgers_of

NOT_CHECKED: Final = ("missions: how fresh the status lists of other issuers were",)
NOT_CHECKED_SCOPE: Final = "missions: whether arguments were in scope, which needs payloads"
NOT_CHECKED_ISSUERS: Final = "missions: signatures of other issuers, whose keys are not in the log and were not given"
NOT_CHECKED_OWNERS: Final = "missions: whose a given key of another issuer is, where its JWK has no member `iss`"


class MissionRules:
    """The rules of missions as one more rule over receipts.

    (1) a mission is well-formed, its lineage is in the log and stands, and it is at most its parent; what was
        revoked stays so
    (2) what a call names as its lineage is that lineage
    (3) a released call had an allowed tool and allowed effects, in time, while every mission stood
    (4) no ceiling was ever exceeded; a result gives back what its own call reserved at most, and once

    `issuers` are the keys of other issuers by their id, from wherever the verifier got them.
    """

    def __init__(self, issuers: Mapping[str, IssuerKey] | None = None) -> None:
        self._given = frozenset(issuers or {})
        self._keys: dict[str, IssuerKey] = dict(issuers or {})
        self._missions: dict[str, Declaration] = {}
        self._lineages: dict[str, list[str]] = {}
        self._stopped: set[str] = set()
        self._revoked: set[str] = set()  # for good
        self._priced: dict[str, dict[str, Any]] = {}  # what calls reserved, until their result settles it
        self._used: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.foreign = False
        self._unowned = False

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What nobody should conclude from these rules."""
        if not self._missions:
            return ()
        issuers = (NOT_CHECKED_ISSUERS,) if self.foreign else ()
        return (*NOT_CHECKED, *issuers, *((NOT_CHECKED_OWNERS,) if self._unowned else ()))

    def see(self, receipt: dict[str, Any]) -> None:
        """Take up the next receipt; raises `LogInvalid` where a rule is broken."""
        kind = receipt["kind"]
        if kind == "key":
            self._announced(receipt["key"])
        elif kind == "mission":
            self._enrolled(receipt)  # (1)
        elif kind == "revocation" and "mission_id" in receipt:
            self._moved(receipt)
        elif "mission_id" in receipt:
            lineage = self.lineage_of(receipt)  # (2)
            if kind == "decision":
                self._reserve(receipt)
            released = kind == "redemption" or (kind == "decision" and receipt.get("decision") in RELEASED)
            if released:
                self._covered(receipt, lineage)  # (3)
                self._take(receipt, lineage, _amounts(receipt, "cost"), 1)  # (4)
            elif kind == "result":
                self._take(receipt, lineage, self._refund(receipt), -1)

    def _announced(self, key: dict[str, Any]) -> None:
        if key.get("purpose") == "mission":
            public = public_of(key["public"])
            if public is not None:
                self._keys[key["kid"]] = IssuerKey(public, None)

    def _enrolled(self, receipt: dict[str, Any]) -> None:
        token = receipt.get("mission")
        chain = receipt.get("lineage", [])
        try:
            declaration = self._declaration(token if isinstance(token, str) else "")
        except MissionInvalid as error:
            raise _invalid("mission_invalid", error.member) from error
        own = declaration.mission_id
        if own != receipt.get("mission_id") or own in self._missions or not chain or chain[-1] != own:
            raise _invalid("mission_invalid", "mission_id")
        above = chain[:-1]
        if above:
            parent = self._missions.get(above[-1])
            if parent is None or self._lineages[above[-1]] != above:
                raise _invalid("mission_unknown", "lineage")
            if self._stopped & set(above):
                raise _invalid("mission_exceeded", "standing")
            try:
                check_attenuation(parent, declaration)
            except MissionInvalid as error:
                raise _invalid("mission_exceeded", error.member) from error
        elif declaration.parent:
            raise _invalid("mission_unknown", "parent")
        self._missions[own] = declaration
        self._lineages[own] = chain

    def _declaration(self, token: str) -> Declaration:
        taken = jws.take_apart(token, jws.MISSION)
        known = self._keys.get(taken.kid)
        if known is not None:
            self._unowned |= known.owner is None and taken.kid in self._given
            return verify_mission(token, self._keys.get)
        self.foreign = True
        return read_declaration(jws.read_claims(taken))

    def _moved(self, receipt: dict[str, Any]) -> None:
        mission_id, action = receipt["mission_id"], receipt.get("action")
        if mission_id not in self._missions:
            raise _invalid("mission_unknown", "mission_id")
        if mission_id in self._revoked:
            raise _invalid("mission_exceeded", "standing")
        if action == "resume":
            self._stopped.discard(mission_id)
        else:
            self._stopped.add(mission_id)
        if action == "revoke":
            self._revoked.add(mission_id)

    def lineage_of(self, receipt: dict[str, Any]) -> tuple[Declaration, ...]:
        """The missions that a receipt names, from the root; raises `LogInvalid` where the log does not hold them."""
        known = self._lineages.get(receipt["mission_id"])
        if known is None or receipt.get("lineage") != known:
            raise _invalid("mission_unknown", "lineage")
        return tuple(self._missions[name] for name in known)

    def _covered(self, receipt: dict[str, Any], lineage: tuple[Declaration, ...]) -> None:
        acting = lineage[-1]
        if any(one.mission_id in self._stopped for one in lineage):
            raise _invalid("mission_exceeded", "standing")
        if acting.sub != receipt.get("agent"):
            raise _invalid("mission_exceeded", "sub")
        try:
            moment = from_rfc3339(receipt["time"])
        except ValueError as error:  # its form was checked, and it is no day of any calendar
            raise _invalid("malformed_member", "time") from error
        server, tool = receipt.get("server"), receipt.get("tool", "")
        for one in lineage:
            # The log's time is the commit's, which a call reaches moments after it was decided.
            if not one.iat * MICROS <= moment < (one.exp + COMMIT_S) * MICROS:
                raise _invalid("mission_exceeded", "exp")
            if acting.mode == "attest":
                continue
            if _selects(one.tools.forbid, server, tool) or not _selects(one.tools.allow, server, tool):
                raise _invalid("mission_exceeded", "tool")
            if not set(receipt.get("effects", ())) <= set(one.effects):
                raise _invalid("mission_exceeded", "effects")

    def _reserve(self, receipt: dict[str, Any]) -> None:
        cost = _amounts(receipt, "cost")
        priced = {name: value for name, value in cost.items() if is_priced(name)}
        if priced and receipt.get("decision") != "block":
            self._priced[receipt["receipt_id"]] = priced

    def _refund(self, receipt: dict[str, Any]) -> dict[str, Any]:
        refund = _amounts(receipt, "refund")
        reserved = self._priced.pop(receipt.get("parent", ""), {})
        for name, value in refund.items():
            if value > reserved.get(name, 0):
                raise _invalid("budget_exceeded", name)
        return refund

    def _take(
        self, receipt: dict[str, Any], lineage: tuple[Declaration, ...], amounts: dict[str, Any], sign: int
    ) -> None:
        ledgers = ledgers_of(
            ceilings_of(lineage),
            agent=receipt.get("agent", ""),
            principal=receipt["principal"],
            session=receipt.get("session", ""),
        )
        enforced = lineage[-1].mode == "enforce"
        for ledger in ledgers:
            for name, value in amounts.items():
                if name not in ledger.ceilings:
                    continue
                place = (ledger.name, name)
                self._used[place] += sign * value
                if enforced and self._used[place] > ledger.ceilings[name]:
                    raise _invalid("budget_exceeded", name)


COMMIT_S: Final = 30  # a decision is recorded within this time, or not at all


def _amounts(receipt: dict[str, Any], name: str) -> dict[str, int]:
    """What a receipt says was taken or given back, by dimension; raises `LogInvalid` for anything but amounts."""
    amounts = receipt.get("budget", {}).get(name, {})
    if type(amounts) is not dict:
        raise _invalid("malformed_member", f"budget.{name}")
    for dimension, amount in amounts.items():
        if type(amount) is not int or amount < 0:
            raise _invalid("budget_exceeded", dimension)
    return amounts


def _selects(selectors: tuple[str, ...], server: str | None, tool: str) -> bool:
    return any(Selector(one).matches(server, tool) for one in selectors)


def _invalid(kind: BreakKind, member: str) -> LogInvalid:
    return LogInvalid(Break(kind=kind, detail=f"`{member}`"))
