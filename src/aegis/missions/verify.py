"""Rules of missions over a log, offline: lineage, tools, effects, times, standing and budgets.

What is believed is what the log's own key announced: the keys of missions that this deployment
signed. Missions of other issuers are read as the log shows them, and are named as not checked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from aegis.core.breaks import Break, BreakKind
from aegis.core.canonical import call_commitment, call_digest, canonical
from aegis.core.json import parse
from aegis.core.mission import Declaration
from aegis.core.names import Selector
from aegis.core.times import MICROS, from_rfc3339
from aegis.detect import gather
from aegis.detect.facts import FactSubject, ReadLimits
from aegis.detect.touch.touch import CompiledScope, compile_scope, outside, touch
from aegis.errors import InvalidCall, LogInvalid, MissionInvalid
from aegis.keys.jws import IssuerKey
from aegis.log.export import Payloads
from aegis.log.records import RELEASED
from aegis.log.trust import public_of
from aegis.missions import status
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import read_declaration, verify_mission
from aegis.missions.ledgers import ceilings_of, ledgers_of
from aegis.policy.guards.budget import is_priced

# Keys of other issuers of missions, for a verifier: a JWK set (RFC 7517, RFC 8037) that came another way.

KEY_BYTES: Final = 32


def read_issuers(data: bytes) -> dict[str, IssuerKey]:
    """The Ed25519 keys of a JWK set by their `kid`; raises `InvalidCall` for anything else.

    A key whose member `iss` names its owner vouches for missions of that issuer alone.
    """
    document = parse(data)
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise InvalidCall("the issuers are not a JWK set")
    found: dict[str, IssuerKey] = {}
    for key in keys:
        described = key if isinstance(key, dict) else {}
        kid, x = described.get("kid"), described.get("x")
        if (described.get("kty"), described.get("crv")) != ("OKP", "Ed25519") or not isinstance(kid, str):
            raise InvalidCall("a key of the issuers is not Ed25519, or has no `kid`")
        try:
            public = status.decode(x.encode("ascii") if isinstance(x, str) else b"*")
        except (MissionInvalid, UnicodeEncodeError) as error:
            raise InvalidCall("a key of the issuers is not 32 bytes in base64url") from error
        if len(public) != KEY_BYTES or kid in found:
            raise InvalidCall("a key of the issuers is not 32 bytes, or is named twice")
        owner = described.get("iss")
        if owner is not None and not isinstance(owner, str):
            raise InvalidCall("`iss` of a key of the issuers is not text")
        found[kid] = IssuerKey(public, owner)
    return found


NOT_CHECKED: Final = ("missions: how fresh the status lists of other issuers were",)
NOT_CHECKED_SCOPE: Final = "missions: whether arguments were in scope, which needs payloads"
NOT_CHECKED_ISSUERS: Final = "missions: signatures of other issuers, whose keys are not in the log and were not given"
NOT_CHECKED_OWNERS: Final = "missions: whose a given key of another issuer is, where its JWK has no member `iss`"


class OfflineMissionRules:
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
        taken = status.take_apart(token, status.MISSION)
        known = self._keys.get(taken.kid)
        if known is not None:
            self._unowned |= known.owner is None and taken.kid in self._given
            return verify_mission(token, self._keys.get)
        self.foreign = True
        return read_declaration(status.read_claims(taken))

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


# The scope of arguments over a log with its payloads, offline: what a released call touched was in its mission.

_RUNS: Final = frozenset({"allow", "sanitize", "require_approval"})
SCOPE_NOT_CHECKED: Final = "missions: links on the file system of the time"


class ScopeRules:
    """The rules of payloads as one more rule over receipts, after those of missions.

    (1) a payload is the one that its receipt committed to, and holds the call that was decided
    (2) everything that a released or held call touches is in the scope of every mission of its lineage
    """

    def __init__(self, missions: OfflineMissionRules, payloads: Payloads):
        self._missions = missions
        self._payloads = payloads
        self._scopes: dict[str, CompiledScope] = {}
        self.missing = 0

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What nobody should conclude from these rules."""
        if not self.missing:
            return (SCOPE_NOT_CHECKED,)
        return (SCOPE_NOT_CHECKED, f"missions: the scope of {self.missing} calls whose payload is not there")

    def see(self, receipt: dict[str, Any]) -> None:
        """Take up the next receipt; raises `LogInvalid` where a rule is broken."""
        found = self._payloads.of(receipt)  # (1)
        if receipt["kind"] != "decision":
            return
        runs = "mission_id" in receipt and receipt.get("decision") in _RUNS
        if found is None:
            self.missing += runs
            return
        arguments = _decided(receipt, *found)
        lineage = self._missions.lineage_of(receipt) if runs else ()
        if lineage and lineage[-1].mode == "enforce":
            self._covered(receipt, arguments, found[0].get("roles", {}), lineage)  # (2)

    def _covered(
        self, receipt: dict[str, Any], arguments: dict[str, Any], roles: Any, lineage: tuple[Declaration, ...]
    ) -> None:
        facts = gather(
            FactSubject(
                tool=receipt["tool"],
                server=receipt.get("server"),
                arguments=arguments,
                limits=ReadLimits(),
                roles=roles,
            )
        )
        touched = touch(
            arguments,
            facts.texts.strings,
            sends="external_send" in receipt.get("effects", ()),
            base=lineage[-1].scope.base,
        )
        for one in lineage:
            for _, kind, _ in outside(self._scope(one), touched):
                raise LogInvalid(Break(kind="mission_exceeded", detail=f"`scope.{kind}`"))

    def _scope(self, declaration: Declaration) -> CompiledScope:
        known = self._scopes.get(declaration.mission_id)
        if known is None:
            known = compile_scope(declaration.scope, declaration.forbidden_scope)
            self._scopes[declaration.mission_id] = known
        return known


def _decided(receipt: dict[str, Any], payload: dict[str, Any], salt: bytes) -> dict[str, Any]:
    """What would run, where it is the call that the receipt commits to; raises `LogInvalid` otherwise."""
    tool, server = receipt["tool"], receipt.get("server")
    submitted: dict[str, Any] | None = payload.get("arguments")
    if submitted is None and receipt.get("decision") in _RUNS:
        raise LogInvalid(Break(kind="payload_changed", detail="`arguments`"))
    runs: dict[str, Any] = payload.get("patched", submitted or {})
    if submitted is None:  # beyond its agent's rate: refused, and kept as its digests alone
        asked, digest = payload["request_digest"], payload["call_digest"]
    else:
        asked = call_digest(server=server, tool=tool, arguments=canonical(submitted))
        digest = call_digest(server=server, tool=tool, arguments=canonical(runs))
    if receipt.get("call_commitment") != call_commitment(salt, asked, digest):
        raise LogInvalid(Break(kind="payload_changed", detail="`call_commitment`"))
    return runs
