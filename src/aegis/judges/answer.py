"""Reading a judge's answer: one object of exactly this shape, or nothing.

(1) the text is one JSON object, bare or inside of one fence, with nothing around it
(2) it has these members and no others, each of its type
(3) numbers are numbers, finite, and between 0 and 1
"""

from __future__ import annotations

import math
from typing import Any, Final

from aegis.errors import ForeignAnswer
from aegis.judges.model import Result, Signal
from aegis.models.reading import read_json

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


def _signal(value: Any) -> Signal:
    if not isinstance(value, dict) or value.keys() != _OF_SIGNAL:
        raise Malformed("a signal does not have exactly the members of a signal")
    if not isinstance(value["category"], str) or not isinstance(value["message"], str):
        raise Malformed("a signal's members are not of their types")
    return Signal(category=value["category"], score=_share(value["score"]), message=value["message"])


def _share(value: Any) -> float:
    """(3) A finite number between 0 and 1; JSON's own `NaN` never gets here, a huge exponent could."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed("a score is not a number")
    if not 0 <= value <= 1 or not math.isfinite(value):
        raise Malformed("a score is not between 0 and 1")
    return float(value)
