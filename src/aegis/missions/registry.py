"""Missions in the store: enrolled once, with their lineage; suspended, resumed or revoked by one write each.

A change of standing moves the control epoch, so that every descendant's next call sees it, in every
process. The functions here make units; whoever records them decides who waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec import Struct

from aegis.core.canonical import canonical, sha256
from aegis.core.mission import MAX_LINEAGE, Declaration, Recourse
from aegis.core.outcome import Reason
from aegis.core.ports import Document, Reader, Transaction
from aegis.core.receipt import Draft
from aegis.errors import InvalidCall, MissionInvalid, StoreConflict
from aegis.log.writer import Unit
from aegis.missions.attenuate import check_attenuation
from aegis.missions.declare import verify_mission
from aegis.missions.holder import CHALLENGE_S, Window
from aegis.missions.status import IssuerFor

# A session under a mission: which mission, how it began, which proofs were used, and what results led to.

SESSIONS: Final = "mission_sessions"
CHALLENGES: Final = "challenges"
MAX_OPEN: Final = 64  # challenges of one principal that wait at once: none is evicted for another
_MICROS: Final = 1_000_000


class MissionSession(msgspec.Struct, frozen=True, kw_only=True):
    """One session as stored. `opened_at` is microseconds since the epoch; `manifest` digests the offered tools."""

    mission_id: str
    opened_at: int
    proof: bool = False
    task: bool = False
    manifest: str | None = None
    window: Window = Window()
    seen: tuple[str, ...] = ()
    denials: int = 0
    recourse: tuple[Recourse, ...] = ()


_decoder = msgspec.json.Decoder(MissionSession)
_encode = msgspec.json.Encoder().encode


def find_session(reader: Reader, key: str) -> tuple[MissionSession, int] | None:
    """The session and the version of its document, or `None`."""
    document = reader.document(SESSIONS, key)
    return None if document is None else (_decoder.decode(document.body), document.version)


def write(transaction: Transaction, key: str, session: MissionSession, version: int) -> None:
    """Write a session over `version` (0: there was none)."""
    transaction.put_document(Document(collection=SESSIONS, key=key, version=version + 1, body=_encode(session)))


def manifest_digest(tools: Sequence[Any]) -> str:
    """The digest of the tools that a host offers, names or whole definitions, in any order."""
    return sha256(b"[" + b",".join(sorted(canonical(tool) for tool in tools)) + b"]")


def challenging(transaction: Transaction, principal: str, nonce: str, now: int) -> None:
    """Keep a fresh challenge of `principal`; `now` is microseconds since the epoch.

    Those whose time is over are forgotten. Raises `TooManyChallenges` where too many wait.
    """
    prefix = f"{principal}\n"
    known = transaction.documents(CHALLENGES, after=prefix, limit=MAX_OPEN * 2)
    own = [document for document in known if document.key.startswith(prefix)]
    over = [document for document in own if int(document.body) + CHALLENGE_S * _MICROS < now]
    if len(own) - len(over) >= MAX_OPEN:
        raise TooManyChallenges("too many challenges wait for an answer")
    for document in over:
        transaction.delete_document(CHALLENGES, document.key)
    transaction.put_document(Document(collection=CHALLENGES, key=prefix + nonce, version=1, body=str(now).encode()))


def check_answer(transaction: Transaction, principal: str, nonce: str, now: int) -> None:
    """Guarantee that a challenge can be answered; raises `ChallengeGone` for one that was used or is too old."""
    document = transaction.document(CHALLENGES, f"{principal}\n{nonce}")
    if document is None or not 0 <= now - int(document.body) <= CHALLENGE_S * _MICROS:
        raise ChallengeGone("the challenge was used, is too old or was never given")


def use_answer(transaction: Transaction, principal: str, nonce: str) -> None:
    """Use a challenge up, for good: one that is not kept cannot be answered."""
    transaction.delete_document(CHALLENGES, f"{principal}\n{nonce}")


class TooManyChallenges(StoreConflict):
    """A principal that asks for challenges and answers none of them."""

    def refused(self) -> InvalidCall:
        """What the caller is told."""
        return InvalidCall(str(self), code="rate_limited", status=429)


class ChallengeGone(StoreConflict):
    """A challenge that cannot be answered any more."""

    def refused(self) -> MissionInvalid:
        """What the caller is told."""
        return MissionInvalid(str(self), member="nonce", code="proof_invalid", status=403)


COLLECTION: Final = "missions"
REQUESTS: Final = "delegations"
MAX_REASON_CHARS: Final = 1_000

State = Literal["active", "suspended", "revoked"]
_FROM: Final[dict[State, frozenset[str]]] = {
    "active": frozenset({"suspended"}),
    "suspended": frozenset({"active"}),
    "revoked": frozenset({"active", "suspended"}),
}
_ACTIONS: Final[dict[State, str]] = {"active": "resume", "suspended": "suspend", "revoked": "revoke"}


class Enrolled(Struct, frozen=True, kw_only=True):
    """One mission as stored: its token, its standing, and the ids from the root of its lineage to itself."""

    token: str
    state: State
    lineage: tuple[str, ...]


def find(reader: Reader, mission_id: str) -> Enrolled | None:
    """The mission of that id, or `None`."""
    document = reader.document(COLLECTION, mission_id)
    if document is None:
        return None
    body = orjson.loads(document.body)
    state: State = document.state  # type: ignore[assignment]
    return Enrolled(token=body["token"], state=state, lineage=tuple(body["lineage"]))


def load_lineage(reader: Reader, mission_id: str, issuer_for: IssuerFor) -> tuple[tuple[Declaration, ...], State]:
    """Every mission from the root to `mission_id`, verified, and the worst standing among them.

    Raises `MissionInvalid` where one is missing, is not signed by its issuer, or goes beyond
    its parent: what the store holds is not believed for being there.
    """
    own = find(reader, mission_id)
    if own is None:
        raise MissionInvalid("there is no such mission", member="mission_id", code="not_found", status=404)
    if not 1 <= len(own.lineage) <= MAX_LINEAGE or own.lineage[-1] != mission_id:
        raise MissionInvalid("the lineage of the mission is not complete", member="lineage")
    found: list[Declaration] = []
    states: set[str] = set()
    for name in own.lineage:
        enrolled = own if name == mission_id else find(reader, name)
        if enrolled is None:
            raise MissionInvalid("the lineage of the mission is not complete", member="lineage")
        declaration = verify_mission(enrolled.token, issuer_for)
        if declaration.mission_id != name:
            raise MissionInvalid("a mission is stored under another id", member="mission_id")
        if found:
            check_attenuation(found[-1], declaration)
        elif declaration.parent:
            raise MissionInvalid("the lineage of the mission does not begin at its root", member="parent")
        found.append(declaration)
        states.add(enrolled.state)
    state: State = "revoked" if "revoked" in states else "suspended" if "suspended" in states else "active"
    return tuple(found), state


def enrolling(
    declaration: Declaration,
    token: str,
    *,
    lineage: Sequence[str],
    principal: str,
    receipt_id: str,
    request: tuple[str, bytes] | None = None,
) -> Unit:
    """The unit that makes a mission known, with its receipt; `lineage` are the ids above it, from the root.

    Recording it raises `StoreConflict` where the id is taken. `request` is the key and the bytes by
    which a repeated request finds this mission again.
    """
    chain = [*lineage, declaration.mission_id]
    if len(chain) > MAX_LINEAGE:
        raise MissionInvalid(f"a lineage has at most {MAX_LINEAGE} missions", member="delegation.depth")
    body = orjson.dumps({"token": token, "lineage": chain})
    members: dict[str, Any] = {
        "kind": "mission",
        "receipt_id": receipt_id,
        "principal": principal,
        "agent": declaration.sub,
        "action": "delegate" if lineage else "issue",
        "mission_id": declaration.mission_id,
        "lineage": chain,
        "mission": token,
    }

    def apply(transaction: Transaction) -> Sequence[Draft]:
        if transaction.document(COLLECTION, declaration.mission_id) is not None:
            raise StoreConflict("a mission of this id is known already")
        for name in lineage:
            above = transaction.document(COLLECTION, name)
            if above is None or above.state != "active":
                raise StoreConflict("a mission above is not active any more")
        if request is not None and transaction.document(REQUESTS, request[0]) is not None:
            raise StoreConflict("this request was carried out already")
        transaction.put_document(
            Document(collection=COLLECTION, key=declaration.mission_id, version=1, state="active", body=body)
        )
        if request is not None:
            transaction.put_document(Document(collection=REQUESTS, key=request[0], version=1, body=request[1]))
        return ()

    return Unit(drafts=(Draft(members=members),), apply=apply)


def is_held_by_another(reader: Reader, mission_id: str, principal: str) -> bool:
    """Whether somebody else than `principal` stopped the mission: what one person stopped, another does not revive."""
    stored = reader.document(COLLECTION, mission_id)
    return stored is not None and stored.state != "active" and orjson.loads(stored.body).get("by") != principal


def moving(
    mission_id: str, to: State, *, reason: str, principal: str, receipt_id: str, revives_any: bool = False
) -> Unit:
    """The unit that revokes (for good), suspends or resumes a mission, with its receipt.

    Whoever suspended a mission resumes it; with `revives_any` the principal resumes what anybody suspended.
    Recording it raises `StoreConflict` where there is no such mission or no such move.
    """
    if len(reason) > MAX_REASON_CHARS:
        raise MissionInvalid(f"`reason` must have at most {MAX_REASON_CHARS} characters", member="reason")

    def apply(transaction: Transaction) -> Sequence[Draft]:
        stored = transaction.document(COLLECTION, mission_id)
        if stored is None or stored.state not in _FROM[to]:
            raise StoreConflict(f"the mission is not one that can be moved to `{to}`")
        if to == "active" and not revives_any and is_held_by_another(transaction, mission_id, principal):
            raise StoreConflict("the mission was suspended by somebody else meanwhile")
        body = {**orjson.loads(stored.body), "reason": reason, "by": principal}
        transaction.put_document(
            Document(
                collection=COLLECTION,
                key=mission_id,
                version=stored.version + 1,
                state=to,
                body=orjson.dumps(body),
            )
        )
        transaction.bump_epoch()
        members: dict[str, Any] = {
            "kind": "revocation",
            "receipt_id": receipt_id,
            "principal": principal,
            "mission_id": mission_id,
            "lineage": body["lineage"],
            "action": _ACTIONS[to],
            "reason": Reason.NONE.value if to == "active" else Reason.REVOKED.value,
        }
        return (Draft(members=members),)

    return Unit(apply=apply)
