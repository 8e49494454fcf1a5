"""Opening a session at the gateway, as requests and answers: sync and async clients drive the same steps.

A mission that names a holder key refuses an opening without proof; the challenge is then asked for
and answered with the key of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aegis.client import wire
from aegis.client.http1 import Answer
from aegis.core.canonical import canonical
from aegis.core.decision import OpenedSession, ReceiptRef
from aegis.errors import GatewayUnavailable, InvalidCall

if TYPE_CHECKING:
    from aegis.missions.holder import Holder, Provers

SESSIONS: Final = "/v1/sessions"
CHALLENGE: Final = "/v1/sessions:challenge"
_UNUSABLE: Final = "the gateway gave no usable answer about the session"


@dataclass(frozen=True, slots=True)
class Post:
    """One request to send."""

    target: str
    body: bytes


Steps = Generator[Post, Answer, OpenedSession]


def opening(
    session: str,
    *,
    task: str,
    mission: str | None,
    tools: Sequence[Any] | None,
    mounts: Sequence[str],
    holder: Callable[[], Holder],
    provers: Provers,
) -> Steps:
    """The steps that open `session` and learn to prove its calls; raises `InvalidCall` where it is refused."""
    body: dict[str, Any] = {"session": session}
    if task:
        body["task"] = task
    if mission is not None:
        body["mission"] = mission
    if tools is not None:
        body["available_tools"] = list(tools)
    if mounts:
        body["mounts"] = list(mounts)
    try:
        opened = _read((yield Post(SESSIONS, canonical(body))))
    except InvalidCall as error:
        if mission is None or error.code != "proof_invalid":
            raise
        challenge = _object((yield Post(CHALLENGE, b"")))
        body["proof"] = holder().answer(
            audience=_text(challenge, "audience"),
            nonce=_text(challenge, "nonce"),
            mission_id=mission,
            session=session,
        )
        opened = _read((yield Post(SESSIONS, canonical(body))))
    if opened.audience is not None:
        provers.add(session, holder().prover(audience=opened.audience, session=session, number=opened.number))
    return opened


def _read(answer: Answer) -> OpenedSession:
    value = _object(answer)
    receipt, number = value.get("receipt"), value.get("next_number", 1)
    if not isinstance(receipt, dict) or type(receipt.get("index")) is not int or type(number) is not int:
        raise GatewayUnavailable(_UNUSABLE)
    return OpenedSession(
        session=_text(value, "session"),
        receipt=ReceiptRef(id=_text(receipt, "id"), index=receipt["index"], leaf_hash=_text(receipt, "leaf_hash")),
        fresh=answer.status == 201,
        audience=_text(value, "audience") if "audience" in value else None,
        number=number,
    )


def _object(answer: Answer) -> dict[str, Any]:
    if 400 <= answer.status < 500 and answer.status != 429:
        raise wire.read_error(answer.body, answer.status)
    if answer.status not in (200, 201):
        raise GatewayUnavailable(_UNUSABLE)
    try:
        return wire.read_object(answer.body)
    except wire.BadAnswer as error:
        raise GatewayUnavailable(_UNUSABLE) from error


def _text(value: dict[str, Any], member: str) -> str:
    found = value.get(member)
    if not isinstance(found, str):
        raise GatewayUnavailable(_UNUSABLE)
    return found
