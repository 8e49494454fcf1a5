"""Signing and verifying webhooks as Standard Webhooks 1.0 has it: HMAC-SHA-256 over id, time and body.

<https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from typing import Any, Final

from aegis.core.json import parse
from aegis.errors import InvalidCall

TOLERANCE_S: Final = 300
_ENCODED: Final = "whsec_"


def headers_for(secret: str, message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that sign `body` as the message `message_id` sent at `seconds` since the epoch."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": "v1," + _sign(secret, message_id, str(seconds), body),
    }


def verify_webhook(
    secret: str, headers: Mapping[str, str], body: bytes, *, tolerance: int = TOLERANCE_S, now: float | None = None
) -> Any:
    """The parsed body of a webhook that this deployment signed, for receivers.

    Args:
        secret: the shared secret.
        headers: the request's headers, in any case.
        body: the raw body.
        tolerance: seconds that the message may be old; keep the `webhook-id` that long to know a repetition.
        now: seconds since the epoch; by default this machine's clock.

    Raises `InvalidCall` (401) where the signature does not hold or the time is over.
    """
    found = {name.lower(): value for name, value in headers.items()}
    message_id, stamp = found.get("webhook-id", ""), found.get("webhook-timestamp", "")
    if not message_id or not (stamp.isascii() and stamp.isdigit() and len(stamp) <= 12):
        raise InvalidCall("the webhook is not signed", code="unsigned", status=401)
    if abs((time.time() if now is None else now) - int(stamp)) > tolerance:
        raise InvalidCall("the webhook is too old, or from the future", code="stale", status=401)
    wanted = _sign(secret, message_id, stamp, body)
    given = [one.partition(",") for one in found.get("webhook-signature", "").split()]
    if not any(version == "v1" and hmac.compare_digest(value.encode(), wanted.encode()) for version, _, value in given):
        raise InvalidCall("the signature of the webhook does not hold", code="bad_signature", status=401)
    return parse(body)


def _sign(secret: str, message_id: str, stamp: str, body: bytes) -> str:
    key = secret.encode()
    if secret.startswith(_ENCODED):
        try:
            key = base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidCall("the secret of the webhook is not base64 behind `whsec_`", code="secret") from error
    signed = f"{message_id}.{stamp}.".encode() + body
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
