"""What Slack is told, and what comes back from it: a message with buttons, and the signature of an answer.

A button carries no authority: it names the approval, bound by the app's secret to the digests of the call and the
policy that the message showed. Who pressed it is what Slack signs.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final

import orjson

from aegis.core.text import visible
from aegis.errors import InvalidCall

APPROVE: Final = "aegis_approve"
DENY: Final = "aegis_deny"
MOST_SHOWN: Final = 2_900  # characters of a block; who saw only a part of the arguments is offered no yes
_TOLERANCE_S: Final = 300  # an older request could be a recorded one: <https://docs.slack.dev/authentication/verifying-requests-from-slack>
_VERSION: Final = "v0"


def escape(text: str) -> str:
    """Text without Slack's markup: <https://docs.slack.dev/messaging/formatting-message-text>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack_body(text: str, link: str, data: Mapping[str, Any], secret: str) -> dict[str, Any]:
    """The message: everything escaped that Slack would read as markup, and buttons where an answer is taken.

    A yes is offered only where the arguments stand in the message whole.
    """
    said = escape(text)[:3_000]
    blocks: list[dict[str, Any]] = [{"type": "section", "text": {"type": "mrkdwn", "text": said}}]
    told = data.get("values", data.get("arguments"))
    arguments = "" if told is None else visible(orjson.dumps(told).decode())
    shown = "values" in data and len(arguments) <= MOST_SHOWN
    if arguments:
        blocks.append({"type": "section", "text": {"type": "plain_text", "text": arguments[:MOST_SHOWN]}})
    elements: list[dict[str, Any]] = []
    if secret and "bound" in data:
        value = f"{data['id']}.{bound_to(secret, data['id'], *data['bound'])}"
        elements += [_button("Approve", APPROVE, value, "primary")] if shown else []
        elements.append(_button("Deny", DENY, value, "danger"))
    if link:
        elements.append({"type": "button", "text": {"type": "plain_text", "text": "Look at it"}, "url": link})
    if elements:
        blocks.append({"type": "actions", "elements": elements})
    return {"text": said, "blocks": blocks}


def _button(text: str, action: str, value: str, style: str) -> dict[str, Any]:
    label = {"type": "plain_text", "text": text}
    return {"type": "button", "text": label, "action_id": action, "value": value, "style": style}


def bound_to(secret: str, approval_id: str, call_digest: str, policy_digest: str) -> str:
    """Bind an approval to what was shown of it; says nothing about the arguments to who lacks the secret."""
    bound = orjson.dumps(["aegis-slack-1", approval_id, call_digest, policy_digest])
    return hmac.new(secret.encode(), bound, hashlib.sha256).hexdigest()


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """The signature that Slack puts into `X-Slack-Signature`."""
    signed = f"{_VERSION}:{timestamp}:".encode() + body
    return f"{_VERSION}={hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()}"


def is_signed(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """Whether this secret signed the request."""
    expected = signature_of(secret, headers.get("x-slack-request-timestamp", ""), body)
    return hmac.compare_digest(expected.encode(), headers.get("x-slack-signature", "").encode("utf-8", "replace"))


def check_recent(headers: Mapping[str, str], *, now: int) -> None:
    """Raise `InvalidCall` (401) for a request whose time, in seconds, is not that of `now`."""
    timestamp = headers.get("x-slack-request-timestamp", "")
    plain = timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= 12
    if not plain or abs(now - int(timestamp)) > _TOLERANCE_S:
        raise InvalidCall("the request is too old, or its time is missing", code="unauthenticated", status=401)
