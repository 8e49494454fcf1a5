"""What a judge says, what a run came to, and what all of it means for the call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Signal:
    """One aspect that a judge scored."""

    category: str
    score: float
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A well-formed answer; score and confidence lie between 0 and 1."""

    score: float
    confidence: float
    reasoning: str
    signals: tuple[Signal, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_wire(self) -> dict[str, Any]:
        return {
            "score": self.score,
            "confidence": self.confidence,
            "reasoning": self.reasoning,
            "signals": [{"category": one.category, "score": one.score, "message": one.message} for one in self.signals],
            "metadata": self.metadata,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Reviewed:
    """What all judges of one call came to together. `workspace` is the digest of the mounts that they saw."""

    cause: Cause
    validator: str = ""
    reasoning: str = ""
    runs: tuple[Ran, ...] = ()
    workspace: str = ""
    skipped: bool = False
