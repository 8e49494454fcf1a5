"""Proof of possession: who calls holds the key that the mission names (RFC 7800, OAuth DPoP in spirit).

A session begins with a proof over the server's challenge; each call carries a proof over audience,
session, sequence number and the digest of the call, so that nothing of it can be changed, moved or
used again. What is checked here is pure; that a number is used once is settled where it is recorded.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
import orjson

from aegis.core.call import ToolCall, readable
from aegis.core.canonical import call_digest, kid_of
from aegis.core.json import convert
from aegis.core.mission import MAX_SKEW_S, Declaration, Seconds, Sha256, Text
from aegis.core.ports import Signer
from aegis.errors import MissionInvalid
from aegis.keys.keyring import Ed25519Signer, load_or_create
from aegis.missions import status

CHALLENGE_S: Final = 60
WINDOW: Final = 1_024  # numbers below the highest that may still come: calls in flight overtake each other
MAX_BATCH: Final = 256

T = TypeVar("T", bound=msgspec.Struct)
Number = Annotated[int, msgspec.Meta(ge=1, le=2**53 - 1)]


class SessionProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims with which a session begins."""

    aud: Text
    nonce: Text
    iat: Seconds
    mission_id: Text
    session: Text


class CallProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The claims of one call, or of several in a row: `calls` are request digests, numbered from `seq`."""

    aud: Text
    sid: Text
    seq: Number
    calls: Annotated[tuple[Sha256, ...], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class Window(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Which sequence numbers were used: the highest, and a bit for each of the `WINDOW` below it (hex)."""

    high: int = 0
    bits: str = "0"

    def is_used(self, number: int) -> bool:
        """Whether a number was used, or is too far behind to tell."""
        if number > self.high:
            return False
        behind = self.high - number
        return behind >= WINDOW or bool(int(self.bits, 16) >> behind & 1)

    def using(self, number: int) -> Window:
        """The window after `number`, which was not used."""
        bits = int(self.bits, 16)
        if number > self.high:
            bits = ((bits << (number - self.high)) & ((1 << WINDOW) - 1)) if number - self.high < WINDOW else 0
            return Window(high=number, bits=f"{bits | 1:x}")
        return Window(high=self.high, bits=f"{bits | 1 << (self.high - number):x}")


@lru_cache(maxsize=1_024)
def _named_key(x: str) -> tuple[bytes, str]:
    """The public key of a JWK, and its identifier."""
    public = status.decode(x.encode("ascii"))
    return public, kid_of(public)


def prove_session(signer: Signer, *, audience: str, nonce: str, mission_id: str, session: str, now_seconds: int) -> str:
    """The token that opens `session` under the challenge `nonce`."""
    claims = SessionProof(aud=audience, nonce=nonce, iat=now_seconds, mission_id=mission_id, session=session)
    return status.sign(signer, status.SESSION_PROOF, orjson.dumps(msgspec.to_builtins(claims)))


def prove_calls(signer: Signer, *, audience: str, session: str, number: int, digests: tuple[str, ...]) -> str:
    """The token that goes with each of the calls of these request digests, numbered from `number`."""
    claims = CallProof(aud=audience, sid=session, seq=number, calls=digests)
    return status.sign(signer, status.CALL_PROOF, orjson.dumps(msgspec.to_builtins(claims)))


def check_session_proof(token: str, declaration: Declaration, *, audience: str, session: str, now: int) -> str:
    """The nonce of a session proof that the mission's holder made for a challenge that can stand at `now`.

    `now` is seconds since the epoch. Raises `MissionInvalid` for any other token.
    """
    claims = _claims(token, status.SESSION_PROOF, SessionProof, declaration)
    for member, value, wanted in (
        ("aud", claims.aud, audience),
        ("session", claims.session, session),
        ("mission_id", claims.mission_id, declaration.mission_id),
    ):
        if value != wanted:
            raise _wrong(member)
    if not now - CHALLENGE_S - MAX_SKEW_S <= claims.iat <= now + MAX_SKEW_S:
        raise MissionInvalid(
            "the proof was not made for this challenge: its time is too far from now",
            member="iat",
            code="proof_invalid",
            status=403,
            hint="answer with `iat` of now, and set the clock",
        )
    return claims.nonce


def check_call_proof(
    token: str, declaration: Declaration, *, audience: str, session: str, digest: str, window: Window | None
) -> int:
    """The unused sequence number under which a proof covers the call of `digest`.

    Without a window a number that was used counts too: a repeat of a known call runs nothing again.
    Raises `MissionInvalid` where the proof covers no such call.
    """
    claims = _claims(token, status.CALL_PROOF, CallProof, declaration)
    if claims.aud != audience:
        raise _wrong("aud")
    if claims.sid != session:
        raise _wrong("sid")
    if digest not in claims.calls:
        raise _wrong("calls")
    for offset, one in enumerate(claims.calls):
        if one == digest and (window is None or not window.is_used(claims.seq + offset)):
            return claims.seq + offset
    raise _wrong("seq")


def _claims(token: str, typ: str, kind: type[T], declaration: Declaration) -> T:
    if declaration.cnf is None:
        raise MissionInvalid("the mission names no holder key", member="cnf")
    public, kid = _named_key(declaration.cnf.jwk.x)
    try:
        return convert(status.verify(token, typ, {kid: public}.get), kind)
    except msgspec.ValidationError as error:
        raise MissionInvalid("the proof is malformed", member="proof", code="proof_invalid", status=403) from error


def _wrong(member: str) -> MissionInvalid:
    return MissionInvalid(f"the proof is about another `{member}`", member=member, code="proof_invalid", status=403)


# The agent's side of proof of possession: its key in a file of its own, and a proof for every call.

MAX_SESSIONS: Final = 65_536  # sessions that one process proves: bounds memory; the oldest ones are forgotten
_FOLDER: Final = "holders"


def holder_folder(home: Path | None = None) -> Path:
    """Where holder keys live on this machine: below `home`, `AEGIS_HOME`, or `~/.aegis`."""
    return (home or Path(os.environ.get("AEGIS_HOME") or "~/.aegis")).expanduser() / _FOLDER


class Holder:
    """One agent's key under `folder`, in a file with mode 0600 that is made where there is none.

    Raises `KeyFileError` where others can read it.
    """

    def __init__(self, folder: Path, agent: str):
        self.key = Ed25519Signer(load_or_create(folder, "holder", agent).secret, "holder", agent)

    def confirmation(self) -> dict[str, dict[str, str]]:
        """The member `cnf` by which a mission names this key."""
        return {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": status.encode(self.key.public).decode("ascii")}}

    def answer(self, *, audience: str, nonce: str, mission_id: str, session: str) -> str:
        """The session proof that answers a challenge."""
        return prove_session(
            self.key,
            audience=audience,
            nonce=nonce,
            mission_id=mission_id,
            session=session,
            now_seconds=int(time.time()),
        )

    def prover(self, *, audience: str, session: str, number: int = 1) -> Prover:
        """What proves the calls of one session; `number` is the first that was not used."""
        return Prover(self.key, audience=audience, session=session, number=number)


class Prover:
    """Numbers and proves the calls of one session; safe for threads."""

    def __init__(self, key: Ed25519Signer, *, audience: str, session: str, number: int = 1):
        self._key = key
        self._audience = audience
        self._session = session
        self._numbers = itertools.count(number)
        self._lock = threading.Lock()

    def prove(self, call: ToolCall) -> ToolCall:
        """The call in this session with its proof; a call of another session or with a proof stays as it is."""
        if call.proof is not None or call.session not in (None, self._session):
            return call
        call, arguments = readable(call)
        digest = call_digest(server=call.server, tool=call.tool, arguments=arguments)
        with self._lock:
            number = next(self._numbers)
        proof = prove_calls(self._key, audience=self._audience, session=self._session, number=number, digests=(digest,))
        return replace(call, session=self._session, proof=proof)


class Provers:
    """The provers of every session that a process opened; safe for threads."""

    def __init__(self) -> None:
        self._provers: dict[str, Prover] = {}
        self._lock = threading.Lock()

    def add(self, session: str, prover: Prover) -> None:
        """Prove the calls of `session` from now on; one that is proved already goes on with its numbers."""
        with self._lock:
            if session in self._provers:
                return
            self._provers[session] = prover
            if len(self._provers) > MAX_SESSIONS:
                del self._provers[next(iter(self._provers))]

    def prove(self, call: ToolCall) -> ToolCall:
        """The call with its proof, where its session is one that is proved."""
        prover = self._provers.get(call.session or "")
        return call if prover is None else prover.prove(call)
