"""A session under a mission: which mission, how it began, which proofs were used, and what results led to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from aegis.core.canonical import canonical
from aegis.core.digest import sha256
from aegis.core.mission import Recourse
from aegis.core.ports import Document, Reader, Transaction
from aegis.errors import InvalidCall, MissionInvalid, StoreConflict
from aegis.missions.possession import CHALLENGE_S, Window

COLLECTION: Final = "mission_sessions"
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


def find(reader: Reader, key: str) -> tuple[MissionSession, int] | None:
    """The session and the version of its document, or `None`."""
    document = reader.document(COLLECTION, key)
    return None if document is None else (_decoder.decode(document.body), document.version)


def write(transaction: Transaction, key: str, session: MissionSession, version: int) -> None:
    """Write a session over `version` (0: there was none)."""
    transaction.put_document(Document(collection=COLLECTION, key=key, version=version + 1, body=_encode(session)))


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
