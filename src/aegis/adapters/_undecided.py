"""What becomes of a call or a result about which no decision could be had: it is refused, and the log says why."""

from __future__ import annotations

import logging
from typing import Final

from aegis.core.call import ToolCall
from aegis.core.decision import Decision, ResultDecision
from aegis.core.messages import message_for
from aegis.core.outcome import Outcome, Reason, Risk, Verdict
from aegis.errors import InvalidCall

_log: Final = logging.getLogger("aegis")


def undecided(call: ToolCall, error: Exception | None) -> Decision:
    """The refusal of a call about which nothing could be learned."""
    if error is not None:
        _log.warning("a call of `%s` was refused because it could not be decided: %s", call.tool, described(error))
    reason = Reason.SCHEMA_INVALID if isinstance(error, InvalidCall) and error.status == 422 else Reason.UNAVAILABLE
    return Decision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        risk=Risk.HIGH,
        reason=reason,
        message=message_for(Outcome.BLOCK, reason),
        decision_id="",
        call_id=call.call_id or "",
        request_digest="",
        call_digest="",
        policy_digest="",
        salt="",
    )


def unobserved(error: Exception) -> ResultDecision:
    """The refusal of a result about which nothing could be learned."""
    _log.warning("a result was withheld because it could not be observed: %s", described(error))
    return ResultDecision(
        outcome=Outcome.BLOCK,
        verdict=Verdict.INSUFFICIENT_EVIDENCE,
        reason=Reason.UNAVAILABLE,
        message=message_for(Outcome.BLOCK, Reason.UNAVAILABLE),
    )


def described(error: Exception) -> str:
    """What may be logged of an error: foreign messages can hold argument values."""
    return error.message if isinstance(error, InvalidCall) else type(error).__name__
