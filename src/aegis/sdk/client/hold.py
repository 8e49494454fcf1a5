"""The waiting for an approval as a state machine; sync and async clients drive the same one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct

from aegis.core.call import ToolCall
from aegis.core.canonical import canonical
from aegis.core.decision import (
    ApprovalRef,
    Decision,
    DeclaredPlan,
    EndedSession,
    OpenedSession,
    ParentSession,
    ReceiptRef,
    SaidTurn,
)
from aegis.core.outcome import Outcome, Reason, message_for
from aegis.errors import GatewayUnavailable, InvalidCall, PermitInvalid
from aegis.sdk.client import wire
from aegis.sdk.client.http1 import HttpAnswer

if TYPE_CHECKING:
    from aegis.missions.holder import Holder, Provers


# Redeeming a permit at the gateway: anything but its plain yes is a refusal.

TARGET: Final = "/v1/permits/verify"
_REFUSALS: Final = frozenset({403, 409})


def body_of(permit: str, *, tool: str, arguments: dict[str, Any], server: str | None) -> bytes:
    """The request that redeems `permit`; raises `InvalidCall` for arguments that are no JSON."""
    members: dict[str, Any] = {"permit": permit, "tool": tool}
    if server is not None:
        members["server"] = server
    return b'{"arguments":' + canonical(arguments) + b"," + canonical(members)[1:]


def read_answer(answer: HttpAnswer) -> str:
    """The identifier of the redeemed permit; raises `PermitInvalid` for every other answer."""
    if answer.status == 200:
        try:
            return wire.read_redeemed(answer.body)
        except wire.BadAnswer as error:
            raise unavailable() from error
    refusal = wire.read_error(answer.body, answer.status)
    if answer.status in _REFUSALS:
        raise PermitInvalid(refusal.message, code=refusal.code, hint=refusal.hint, status=answer.status)
    if 400 <= answer.status < 500 and answer.status != 429:
        raise refusal
    raise unavailable()


def unavailable() -> PermitInvalid:
    """The refusal where the gateway cannot be asked."""
    return PermitInvalid("the permit could not be redeemed, so it opens nothing", code="unavailable", status=503)


# Opening a session at the gateway, as requests and answers: sync and async clients drive the same steps.
#
# A mission that names a holder key refuses an opening without proof; the challenge is then asked for and answered
# with the key of this machine.

SESSIONS: Final = "/v1/sessions"
CHALLENGE: Final = "/v1/sessions:challenge"
_UNUSABLE: Final = "the gateway gave no usable answer about the session"


class Post(Struct, frozen=True):
    """One request to send."""

    target: str
    body: bytes


Steps = Generator[Post, HttpAnswer, OpenedSession]


def opening(
    session: str,
    *,
    task: str,
    mission: str | None,
    tools: Sequence[Any] | None,
    mounts: Sequence[str],
    owner: str,
    turns: Sequence[str],
    parent: ParentSession | None,
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
    if owner:
        body["owner"] = owner
    if turns:
        body["turns"] = list(turns)
    if parent is not None:
        body["parent"] = {"session": parent.session} | ({"call_id": parent.call_id} if parent.call_id else {})
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


def turn_of(session: str, text: str, *, turn: int | None, documents: Sequence[str]) -> Post:
    """The request that records what the user said."""
    body: dict[str, Any] = {"text": text}
    if turn is not None:
        body["turn"] = turn
    if documents:
        body["documents"] = list(documents)
    return Post(f"{SESSIONS}/{quote(session, safe='')}/turns", canonical(body))


def end_of(session: str) -> Post:
    """The request that ends a session."""
    return Post(f"{SESSIONS}/{quote(session, safe='')}/end", b"")


def read_turn(answer: HttpAnswer) -> SaidTurn:
    """The turn that an answer says was recorded; raises `InvalidCall` where it was refused."""
    value = _object(answer)
    receipt, number = value.get("receipt"), value.get("turn")
    if not isinstance(receipt, dict) or type(receipt.get("index")) is not int or type(number) is not int:
        raise GatewayUnavailable(_UNUSABLE)
    place = ReceiptRef(id=_text(receipt, "id"), index=receipt["index"], leaf_hash=_text(receipt, "leaf_hash"))
    return SaidTurn(session=_text(value, "session"), turn=number, receipt=place, fresh=answer.status == 201)


def plan_of(session: str, plan: dict[str, Any]) -> Post:
    """The request that declares what a session is about to do."""
    return Post(f"{SESSIONS}/{quote(session, safe='')}/plan", canonical(plan))


def read_plan(answer: HttpAnswer) -> DeclaredPlan:
    """The plan that an answer says was declared, or waits for a person; raises `InvalidCall` where it was refused."""
    value = _object(answer)
    receipt, approval = value.get("receipt"), value.get("approval")
    place: ReceiptRef | None = None
    waits: ApprovalRef | None = None
    if isinstance(approval, dict):
        waits = ApprovalRef(id=_text(approval, "id"), expires_at=_text(approval, "expires_at"))
    elif isinstance(receipt, dict) and type(receipt.get("index")) is int:
        place = ReceiptRef(id=_text(receipt, "id"), index=receipt["index"], leaf_hash=_text(receipt, "leaf_hash"))
    else:
        raise GatewayUnavailable(_UNUSABLE)
    return DeclaredPlan(
        session=_text(value, "session"),
        digest=_text(value, "digest"),
        receipt=place,
        fresh=answer.status == 201,
        approval=waits,
    )


def read_end(answer: HttpAnswer) -> EndedSession:
    """The end that an answer says is on record; raises `InvalidCall` where it was refused."""
    read = _read(answer)
    return EndedSession(session=read.session, receipt=read.receipt, fresh=read.fresh)


def unheard() -> GatewayUnavailable:
    """What is raised where the gateway did not answer about a turn or the end of a session."""
    return GatewayUnavailable("the gateway did not answer about the session")


def _read(answer: HttpAnswer) -> OpenedSession:
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


def _object(answer: HttpAnswer) -> dict[str, Any]:
    if 400 <= answer.status < 500 and answer.status != 429:
        raise wire.read_error(answer.body, answer.status)
    if answer.status not in (200, 201, 202):
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


LONG_POLL: Final = 30.0  # seconds that the gateway is asked to hold one request
PAUSE: Final = 2.0  # seconds between requests where the gateway does not hold them
PATIENCE: Final = 60.0  # seconds without any answer after which the gateway counts as gone

_PASSING: Final = frozenset({Reason.UNAVAILABLE, Reason.RATE_LIMITED})


class HoldStep(Struct, frozen=True, kw_only=True):
    """What to do next: ask `target` after `seconds`, or with no target ask for the decision again."""

    target: str | None = None
    seconds: float = 0.0
    timeout: float = 0.0

    def pause(self) -> None:
        """Sleep this thread until the step is due."""
        if self.seconds:
            time.sleep(self.seconds)

    async def apause(self) -> None:
        """Sleep this task until the step is due."""
        if self.seconds:
            await asyncio.sleep(self.seconds)


@dataclass(kw_only=True, slots=True)
class Hold:
    """One held call on its way to a decision.

    Drive it: take `next()`, do what it says, report with `answered`, `unanswered` or `decided`, until
    it gives `None`; then `decision` is the result. It never turns into a permission by itself: only
    a decision that the gateway gave anew can allow.
    """

    call: ToolCall
    decision: Decision
    timeout: float | None
    exchange_timeout: float
    clock: Callable[[], float] = time.monotonic
    _deadline: float | None = field(default=None, init=False)
    _silent_since: float | None = field(default=None, init=False)
    _asked_at: float = field(default=0.0, init=False)
    _pause: float = field(default=0.0, init=False)
    _resubmit: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        # The same call id, or the gateway would take the repetition for a new call.
        self.call = replace(self.call, call_id=self.decision.call_id)
        self._deadline = None if self.timeout is None else self.clock() + self.timeout

    def next(self) -> HoldStep | None:
        """The next step, or `None` when `decision` is final."""
        approval = self.decision.approval
        if self.decision.outcome is not Outcome.REQUIRE_APPROVAL or approval is None:
            return None
        now = self.clock()
        left = LONG_POLL + self._pause if self._deadline is None else self._deadline - now
        if self._silent_since is not None and now - self._silent_since > PATIENCE:
            message = message_for(Outcome.BLOCK, Reason.UNAVAILABLE)
            self.decision = replace(
                self.decision, outcome=Outcome.BLOCK, reason=Reason.UNAVAILABLE, message=message, approval=None
            )
            return None
        if self._resubmit:
            self._resubmit = False
            return HoldStep()
        if left <= self._pause:
            return None
        held = min(LONG_POLL, left - self._pause)
        self._asked_at = now + self._pause
        target = f"/v1/approvals/{approval.id}?wait={int(held)}"
        return HoldStep(target=target, seconds=self._pause, timeout=held + self.exchange_timeout)

    def answered(self, answer: HttpAnswer) -> None:
        """Take the answer about the approval; raises `InvalidCall` where the gateway says it is not ours."""
        status = answer.status
        if status == 429 or status >= 500 or status < 200:
            self.unanswered(wire.retry_after(answer.headers.get("retry-after")))
            return
        if 400 <= status < 500:
            raise wire.read_error(answer.body, status)
        try:
            approval = self.decision.approval
            state = wire.read_approval_state(answer.body, approval.id if approval is not None else "")
        except wire.BadAnswer:
            self.unanswered()
            return
        self._silent_since = None
        if state != "pending":
            self._resubmit = True
            self._pause = PAUSE  # should the same approval be asked for again, it is not asked for in a loop
            return
        # A gateway that answers at once does not hold requests.
        self._pause = PAUSE if self.clock() - self._asked_at < 1.0 else 0.0

    def unanswered(self, wait: int | None = None) -> None:
        """There was no answer, or none that can be read; `wait` are the seconds the gateway asks for."""
        if self._silent_since is None:
            self._silent_since = self.clock()
        self._pause = max(PAUSE, float(wait or 0))

    def decided(self, decision: Decision) -> None:
        """Take the decision that the same call was given when it was asked for again."""
        if decision.outcome is Outcome.BLOCK and decision.reason in _PASSING:
            # The approval stands; only the answer is missing.
            self.unanswered(decision.retry_after)
            return
        self._silent_since = None
        self.decision = decision
