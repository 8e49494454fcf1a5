"""Answers that people give in Slack: signed by Slack, of a mapped account, about exactly what the message showed.

(1) The signature is that of a configured app, and the request is recent.
(2) Who pressed is mapped to an account that is active and an approver; nothing that Slack says gives a right.
(3) The button is bound to the digests of the call and the policy that are still held.
(4) The answer counts by the same rules as every other: once, in time, by somebody who did not ask for the call.
"""

from __future__ import annotations

import asyncio
import hmac
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from starlette.responses import Response

from aegis.approvals.answering import Answer
from aegis.approvals.queue import load
from aegis.core.approval import Notifier
from aegis.core.json import parse
from aegis.core.principal import Principal
from aegis.errors import InvalidCall
from aegis.keys.accounts import find_account
from aegis.keys.references import read_secret
from aegis.outbound.slack import APPROVE, DENY, bound_to, check_recent, is_signed
from aegis.server.endpoint import ApiRequest, Body, Endpoint
from aegis.server.http import answer
from aegis.server.schemas import failing, ok

_MICROS: Final = 1_000_000
_DECISIONS: Final = {APPROVE: "approve", DENY: "deny"}


class _Pressed(NamedTuple):
    """What was pressed: by whom in Slack, which button, and the value that it carries."""

    user: str
    action: str
    value: str


async def answer_in_slack(request: ApiRequest) -> Response:
    """Count what a person pressed in Slack as that person's answer."""
    approval_id, principal, given = await asyncio.to_thread(_given, request)
    await request.services.gate.aanswer(approval_id, given, principal=principal)
    return answer({"status": "answered"})


def _given(request: ApiRequest) -> tuple[str, Principal, Answer]:
    """The approval, who answers it, and what; raises `InvalidCall` for what does not count."""
    parts = request.services.gate.parts
    secret, app = _signed_by(parts.policy.current.approval_rules.slack, request)  # (1)
    check_recent(request.headers, now=parts.clock() // _MICROS)
    pressed = _pressed(request.text)
    with parts.store.reader() as reader:
        name = dict(app.people).get(pressed.user)
        account = None if name is None else find_account(reader, name)
        if account is None or account.state != "active" or "approver" not in account.roles:  # (2)
            raise InvalidCall(
                "nobody who may answer is mapped to this person",
                code="forbidden",
                hint="`people` of the notifier maps users of Slack to accounts with the role approver",
                status=403,
            )
        approval_id, _, bound = pressed.value.partition(".")
        approval = load(reader, approval_id)
    shown = bound_to(secret, approval.id, approval.call_digest, approval.policy_digest)
    if not hmac.compare_digest(shown.encode(), bound.encode("utf-8", "replace")):  # (3)
        raise InvalidCall("what was shown is not what is held", code="conflict", status=409)
    return (
        approval.id,
        account.principal,
        Answer(
            decision="approve" if pressed.action == APPROVE else "deny",
            reason="in Slack",
            call_digest=approval.call_digest,
            policy_digest=approval.policy_digest,
        ),
    )


def _signed_by(apps: tuple[Notifier, ...], request: ApiRequest) -> tuple[str, Notifier]:
    for app in apps:
        secret = read_secret(app.secret).reveal()
        if is_signed(secret, request.headers, request.text):
            return secret, app
    raise InvalidCall("no configured app of Slack signed this", code="unauthenticated", status=401)


def _pressed(body: bytes) -> _Pressed:
    """The one button of an interaction; raises `InvalidCall` for anything else."""
    try:
        (text,) = parse_qs(body.decode(), strict_parsing=True, max_num_fields=1)["payload"]
        payload: Any = parse(text.encode())
        (action,) = payload["actions"]
        pressed = _Pressed(payload["user"]["id"], action["action_id"], action["value"])
    except (ValueError, KeyError, TypeError, InvalidCall) as error:
        raise InvalidCall("this is no press of one button", code="invalid", status=422) from error
    if pressed.action not in _DECISIONS or not all(isinstance(one, str) for one in pressed):
        raise InvalidCall("this is no button of an approval", code="invalid", status=422)
    return pressed


ANSWER_IN_SLACK: Final = Endpoint(
    method="POST",
    path="/v1/slack/interactions",
    operation="answerInSlack",
    tag="approvals",
    summary="Take an answer that a person gave in Slack, signed by Slack",
    permission=None,
    handler=answer_in_slack,
    body=Body(schema={"type": "string"}, media="application/x-www-form-urlencoded"),
    replies={
        **ok("answered", "SlackAnswer"),
        **failing(
            s401="no configured app signed it, or it is too old",
            s403="nobody who may answer is mapped to this person",
            s404="there is none",
            s409="answered or expired already, or not what was shown",
            s429="this person approved as many calls as one may in an hour",
        ),
    },
)
