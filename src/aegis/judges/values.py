"""What a judge says, what a run came to, and what all of it means for the call."""

from __future__ import annotations

import math
from typing import Any, Final, Literal

from msgspec import Struct, field

from aegis.errors import ForeignAnswer
from aegis.wire.client import read_json

# Why a run or a review ended as it did. Only `passed` lets a call go on.
Cause = Literal[
    "passed", "score", "confidence", "consensus", "disagreement", "malformed", "forged", "timeout", "cancelled",
    "provider", "sandbox", "turns", "tokens", "failed", "unavailable", "breaker", "truncated", "workspace",
    "probing", "ceiling", "lost",
]  # fmt: skip

# A judge looked and said no; everything else beside `passed` means that nobody looked properly.
REJECTED: frozenset[Cause] = frozenset({"score", "confidence", "consensus", "probing"})
# What goes to a person instead of being refused, where nothing else refuses.
ESCALATED: frozenset[Cause] = frozenset({"disagreement", "ceiling"})


class JudgeSignal(Struct, frozen=True, kw_only=True):
    """One aspect that a judge scored."""

    category: str
    score: float
    message: str


class Result(Struct, frozen=True, kw_only=True):
    """A well-formed answer; score and confidence lie between 0 and 1."""

    score: float
    confidence: float
    reasoning: str
    signals: tuple[JudgeSignal, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        return {
            "score": self.score,
            "confidence": self.confidence,
            "reasoning": self.reasoning,
            "signals": [{"category": one.category, "score": one.score, "message": one.message} for one in self.signals],
            "metadata": self.metadata,
        }


class Spent(Struct, frozen=True, kw_only=True):
    """What a run used; `cost` in millionths of the operator's currency."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost: int = 0

    def plus(self, other: Spent) -> Spent:
        return Spent(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
        )


class JudgeRan(Struct, frozen=True, kw_only=True):
    """One run of one judge: what it said, or why it said nothing that counts; `receipt_id` is that of its end."""

    judge: str
    run_id: str
    cause: Cause
    result: Result | None = None
    spent: Spent = field(default_factory=Spent)
    seconds: float = 0.0
    detail: str = ""
    transcript: tuple[dict[str, Any], ...] = ()
    cached: bool = False
    receipt_id: str = ""


class Reviewed(Struct, frozen=True, kw_only=True):
    """What all judges of one call came to together. `workspace` is the digest of the mounts that they saw."""

    cause: Cause
    validator: str = ""
    reasoning: str = ""
    runs: tuple[JudgeRan, ...] = ()
    workspace: str = ""
    skipped: bool = False


# Reading a judge's answer: one object of exactly this shape, or nothing.
#
# (1) the text is one JSON object, bare or inside of one fence, with nothing around it
# (2) it has these members and no others, each of its type
# (3) numbers are numbers, finite, and between 0 and 1

MAX_ANSWER: Final = 65_536  # characters: a judge that writes more is not answering
MAX_SIGNALS: Final = 100
MAX_REASONING: Final = 16_384
_MEMBERS: Final = frozenset({"score", "confidence", "reasoning", "signals", "metadata"})
_OF_SIGNAL: Final = frozenset({"category", "score", "message"})


class Malformed(Exception):
    """The answer is not one; the message says why, without its text."""


def read_answer(text: str) -> Result:
    """The result that `text` spells; raises `Malformed` for anything else."""
    # (1)
    try:
        value = read_json(text, max_chars=MAX_ANSWER)
    except ForeignAnswer as error:
        raise Malformed(str(error)) from error
    # (2)
    if not isinstance(value, dict) or value.keys() != _MEMBERS:
        raise Malformed("the answer does not have exactly the members of a result")
    reasoning, metadata, signals = value["reasoning"], value["metadata"], value["signals"]
    if not isinstance(reasoning, str) or len(reasoning) > MAX_REASONING:
        raise Malformed("`reasoning` is not text of a bearable length")
    if not isinstance(metadata, dict) or not isinstance(signals, list) or len(signals) > MAX_SIGNALS:
        raise Malformed("`metadata` or `signals` is not what it should be")
    return Result(
        score=_share(value["score"]),
        confidence=_share(value["confidence"]),
        reasoning=reasoning,
        signals=tuple(_signal(one) for one in signals),
        metadata=metadata,
    )


def _signal(value: Any) -> JudgeSignal:
    if not isinstance(value, dict) or value.keys() != _OF_SIGNAL:
        raise Malformed("a signal does not have exactly the members of a signal")
    if not isinstance(value["category"], str) or not isinstance(value["message"], str):
        raise Malformed("a signal's members are not of their types")
    return JudgeSignal(category=value["category"], score=_share(value["score"]), message=value["message"])


def _share(value: Any) -> float:
    """(3) A finite number between 0 and 1; JSON's own `NaN` never gets here, a huge exponent could."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed("a score is not a number")
    if not 0 <= value <= 1 or not math.isfinite(value):
        raise Malformed("a score is not between 0 and 1")
    return float(value)
