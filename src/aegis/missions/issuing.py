"""Missions from the outside: issued, delegated, stopped, and taken up by a session.

Every function reads what it needs and gives back a unit; the gate records it. What is signed here is
signed with this deployment's mission key; missions of other issuers come as tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec import Struct

from aegis.context.sessions import opening, session_key
from aegis.core.canonical import canonical, kid_of, sha256
from aegis.core.decision import ParentSession
from aegis.core.mission import MAX_SKEW_S, Declaration
from aegis.core.ports import Reader, Transaction
from aegis.core.principal import Principal
from aegis.core.receipt import Draft
from aegis.core.times import MICROS
from aegis.errors import InvalidCall, MissionInvalid
from aegis.gate.control import check_runs
from aegis.gate.events import new_id
from aegis.gate.parts import Parts
from aegis.gate.permits import KEYS
from aegis.log.writer import Unit
from aegis.missions import registry, status
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import read_declaration, remarks, sign_mission, verify_mission
from aegis.missions.holder import check_session_proof
from aegis.missions.registry import MissionSession
from aegis.missions.standing import Missions
from aegis.missions.status import publishing, read_status

# What is filled in where a mission is signed here; a caller that names one of them is refused.
_OURS: Final = ("iss", "aud", "iat", "jti", "parent")


class Issued(Struct, frozen=True, kw_only=True):
    """A mission with its token, and what to record; no unit where a repeated request found it again."""

    declaration: Declaration
    token: str
    lineage: tuple[str, ...]
    unit: Unit | None

    def to_wire(self) -> dict[str, Any]:
        """The answer to who asked for it."""
        return {
            "mission_id": self.declaration.mission_id,
            "mission": self.token,
            "lineage": list(self.lineage),
            "remarks": remarks(self.declaration),
        }


class Issuing:
    """Issues and moves missions, over the parts of one deployment."""

    def __init__(self, parts: Parts, missions: Missions):
        self._parts = parts
        self._missions = missions

    def issue(self, principal: Principal, *, claims: Any = None, token: str | None = None) -> Issued:
        """A root mission: `claims` to be signed here, or the `token` of a trusted issuer.

        Raises `MissionInvalid` naming the member that is wrong.
        """
        _may_issue(principal)
        if (claims is None) is (token is None):
            raise InvalidCall("a mission is issued from its claims or from a token, and one of the two is needed")
        if token is not None:
            with self._parts.store.reader() as reader:
                declaration = verify_mission(token, self._missions.trusted(reader, self._parts.policy.current))
            self._check_received(declaration)
        else:
            declaration, token = self._signed(claims, principal, parent="")
        self._check_holder(declaration)
        if declaration.parent:
            raise MissionInvalid("a root mission has no parent; delegate it from there", member="parent")
        unit = registry.enrolling(declaration, token, lineage=(), principal=principal.id, receipt_id=new_id())
        unit = _while_running(principal, unit)
        return Issued(declaration=declaration, token=token, lineage=(declaration.mission_id,), unit=unit)

    def delegate(self, principal: Principal, parent_id: str, *, claims: Any, request_id: str) -> Issued:
        """A mission that is at most its parent; the same request again finds the same mission.

        An issuer may delegate any mission, an agent its own. Raises `MissionInvalid` naming the
        dimension in which the child goes beyond.
        """
        asked = sha256(canonical(claims))
        key = sha256(canonical([principal.id, parent_id, request_id]))
        with self._parts.store.reader() as reader:
            check_runs(reader, principal)
            known = reader.document(registry.REQUESTS, key)
            if known is not None:
                return self._again(reader, orjson.loads(known.body), asked)
            policy = self._parts.policy.current
            above, state = registry.load_lineage(reader, parent_id, self._missions.trusted(reader, policy))
        if "issuer" not in principal.roles and (principal.agent is None or principal.agent != above[-1].sub):
            raise InvalidCall("a mission is delegated by an issuer, or by its agent", code="forbidden", status=403)
        if state != "active":
            raise MissionInvalid("the mission is not active", member="status", code="conflict", status=409)
        declaration, token = self._signed(claims, principal, parent=parent_id)
        self._check_holder(declaration)
        check_attenuation(above[-1], declaration)
        lineage = tuple(one.mission_id for one in above)
        unit = registry.enrolling(
            declaration,
            token,
            lineage=lineage,
            principal=principal.id,
            receipt_id=new_id(),
            request=(key, orjson.dumps({"asked": asked, "mission_id": declaration.mission_id})),
        )
        return Issued(
            declaration=declaration,
            token=token,
            lineage=(*lineage, declaration.mission_id),
            unit=_while_running(principal, unit),
        )

    def move(self, principal: Principal, mission_id: str, to: registry.State, reason: str) -> Unit:
        """The unit that revokes, suspends or resumes a mission, and with it everything below.

        Every issuer may stop a mission; one that is suspended goes on by whoever suspended it, or by an administrator.
        """
        _may_issue(principal)
        with self._parts.store.reader() as reader:
            if registry.find(reader, mission_id) is None:
                raise InvalidCall("there is no such mission", code="not_found", status=404)
            revives_any = "admin" in principal.roles
            if to == "active" and not revives_any and registry.is_held_by_another(reader, mission_id, principal.id):
                raise InvalidCall(
                    "a mission is resumed by whoever suspended it, or by an administrator",
                    code="forbidden",
                    status=403,
                )
        return registry.moving(
            mission_id, to, reason=reason, principal=principal.id, receipt_id=new_id(), revives_any=revives_any
        )

    def publish(self, principal: Principal, token: str) -> Unit:
        """The unit that puts an issuer's status list in force."""
        _may_issue(principal)
        listed = read_status(token, self._parts.policy.current.missions.issuers.get, self._parts.clock() // MICROS)
        return publishing(listed, principal=principal.id, receipt_id=new_id())

    def challenge(self, principal: Principal) -> tuple[str, Unit]:
        """A nonce that one session can be opened with, within a minute, and what to record."""
        nonce, now = f"{new_id()}{new_id()}", self._parts.clock()

        def apply(transaction: Transaction) -> Sequence[Draft]:
            check_runs(transaction, principal)
            registry.challenging(transaction, principal.id, nonce, now)
            return ()

        return nonce, Unit(apply=apply)

    def open(
        self,
        principal: Principal,
        session: str,
        task: str,
        mission_id: str,
        *,
        proof: str | None = None,
        tools: Sequence[Any] | None = None,
        owner: str = "",
        parent: ParentSession | None = None,
    ) -> tuple[Unit, Declaration]:
        """The unit that opens `session` under a mission, and that mission; `tools` are what the host offers the agent.

        `owner` is the person for whom the session runs, and `parent` the session that it was opened from.

        Raises `MissionInvalid` where the mission does not stand, is another agent's, or is not proved.
        """
        now = self._parts.clock()
        policy = self._parts.policy.current
        with self._parts.store.reader() as reader:
            lineage = self._missions.lineage(reader, mission_id, reader.head().epoch, policy)
            standing = status.standings(reader, lineage.declarations, now // MICROS)
        acting = lineage.declarations[-1]
        if lineage.standing != "active" or any(one != "active" for one in standing):
            raise MissionInvalid("the mission is not active", member="status", status=403)
        if any(not one.iat * MICROS <= now < one.exp * MICROS for one in lineage.declarations):
            raise MissionInvalid("the mission is over or has not begun", member="exp", status=403)
        if acting.aud != policy.missions.audience:
            raise MissionInvalid("the mission is for another deployment", member="aud", status=403)
        if acting.sub != (principal.agent or principal.id):
            raise MissionInvalid("the mission is another agent's", member="sub", status=403)
        manifest = None if tools is None else registry.manifest_digest(tools)
        if manifest is not None and acting.tool_manifest not in (None, manifest):
            raise MissionInvalid(
                "the tools are not those that were approved", member="tool_manifest", code="tool_changed", status=403
            )
        nonce = None
        if acting.cnf is not None:
            if proof is None:
                raise MissionInvalid(
                    "the session needs a proof of the holder's key",
                    member="proof",
                    code="proof_invalid",
                    status=403,
                )
            nonce = check_session_proof(
                proof, acting, audience=policy.missions.audience, session=session, now=now // MICROS
            )
        unit = self._opening(
            principal,
            session,
            task,
            MissionSession(
                mission_id=mission_id,
                opened_at=now,
                proof=nonce is not None,
                task=bool(task.strip()),
                manifest=manifest,
            ),
            nonce=nonce,
            members={"mission_id": mission_id, "lineage": lineage.ids},
            owner=owner,
            parent=parent,
        )
        return unit, acting

    def acting(self, reader: Reader, mission_id: str) -> Declaration:
        """The verified mission of that id; raises `MissionInvalid` where there is none."""
        policy = self._parts.policy.current
        return self._missions.lineage(reader, mission_id, reader.head().epoch, policy).declarations[-1]

    @staticmethod
    def _opening(
        principal: Principal,
        session: str,
        task: str,
        state: MissionSession,
        *,
        nonce: str | None,
        members: Mapping[str, Any],
        owner: str,
        parent: ParentSession | None,
    ) -> Unit:
        unit = opening(principal, session, task, owner, parent=parent)
        key = session_key(principal, session)
        first = unit.apply

        def apply(transaction: Transaction) -> Sequence[Draft]:
            if nonce is not None:
                registry.check_answer(transaction, principal.id, nonce, state.opened_at)
            drafts = () if first is None else first(transaction)
            if nonce is not None:
                registry.use_answer(transaction, principal.id, nonce)
            registry.write(transaction, key, state, 0)
            return drafts

        drafts = tuple(
            Draft(members={**one.members, **members}, signer=one.signer, payload=one.payload, salt=one.salt)
            for one in unit.drafts
        )
        return Unit(drafts=drafts, apply=apply)

    def _signed(self, claims: Any, principal: Principal, *, parent: str) -> tuple[Declaration, str]:
        if not isinstance(claims, dict):
            raise MissionInvalid("the mission is not an object", member="mission")
        for member in _OURS:
            if member in claims:
                raise MissionInvalid(f"`{member}` is filled in by this deployment", member=member)
        filled: dict[str, Any] = {
            "mission_id": new_id(),
            **claims,
            "iss": principal.id,
            "aud": self._parts.policy.current.missions.audience,
            "iat": self._parts.clock() // MICROS,
            "jti": new_id(),
        }
        if parent:
            filled["parent"] = parent
        declaration = read_declaration(filled)
        self._parts.introduce_keys()
        return declaration, sign_mission(declaration, self._parts.keys.mission_signer())

    def _check_received(self, declaration: Declaration) -> None:
        now = self._parts.clock() // MICROS
        if declaration.aud != self._parts.policy.current.missions.audience:
            raise MissionInvalid("the mission is for another deployment", member="aud")
        if declaration.exp <= now:
            raise MissionInvalid("the mission is over", member="exp")
        if declaration.iat > now + MAX_SKEW_S:
            raise MissionInvalid("the mission is from the future", member="iat")

    def _check_holder(self, declaration: Declaration) -> None:
        """One key, one purpose: the holder's is none of this deployment's, and none that the configuration names."""
        if declaration.cnf is None:
            return
        public = status.decode(declaration.cnf.jwk.x.encode("ascii"))
        rules = self._parts.policy.current.missions
        with self._parts.store.reader() as reader:
            known = reader.document(KEYS, kid_of(public)) is not None
        if known or kid_of(public) in rules.issuers or public in rules.signing:
            raise MissionInvalid("the holder's key has another purpose here", member="cnf")

    def _again(self, reader: Reader, known: dict[str, Any], asked: str) -> Issued:
        if known["asked"] != asked:
            raise InvalidCall("this request id was used for another mission", code="conflict", status=409)
        enrolled = registry.find(reader, known["mission_id"])
        if enrolled is None:
            raise InvalidCall("there is no such mission", code="not_found", status=404)
        declaration = verify_mission(enrolled.token, self._missions.trusted(reader, self._parts.policy.current))
        return Issued(declaration=declaration, token=enrolled.token, lineage=enrolled.lineage, unit=None)


def _while_running(principal: Principal, unit: Unit) -> Unit:
    """The unit, recorded only while the agent of the principal is not stopped."""
    first = unit.apply

    def apply(transaction: Transaction) -> Sequence[Draft]:
        check_runs(transaction, principal)
        return () if first is None else first(transaction)

    return Unit(drafts=unit.drafts, apply=apply)


def _may_issue(principal: Principal) -> None:
    if principal.roles.isdisjoint({"issuer", "admin"}):
        raise InvalidCall("missions are issued and stopped by issuers", code="forbidden", status=403)
