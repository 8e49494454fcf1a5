"""The agent's side of proof of possession: its key in a file of its own, and a proof for every call."""

from __future__ import annotations

import itertools
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from aegis.core.call import ToolCall
from aegis.core.digest import call_digest
from aegis.core.pending import readable
from aegis.keys.files import load_or_create
from aegis.keys.keyring import Ed25519Signer
from aegis.missions import jws
from aegis.missions.possession import prove_calls, prove_session

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
        return {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": jws.encode(self.key.public).decode("ascii")}}

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
        prover = None if call.session is None else self._provers.get(call.session)
        return call if prover is None else prover.prove(call)
