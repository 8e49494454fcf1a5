"""What several judges of one call come to together; thresholds hold with `>=`, and silence counts against the call."""

from __future__ import annotations

from collections.abc import Sequence

from aegis.core.judging import Validator
from aegis.judges.model import Cause, Ran, Result


def agree(validator: Validator, runs: Sequence[Ran]) -> Cause:
    """The cause that the runs of one validator amount to.

    (1) a single judge: its own cause
    (2) too few well-formed answers: the cause of the first that failed
    (3) disagreement beyond `min_agreement`: a person
    (4) the consensus rule; a judge that failed counts as a no in every rule that counts heads
    """
    # (1)
    if len(validator.judges) == 1:
        return _of_one(validator, runs[0])
    # (2)
    answered = [run.result for run in runs if run.result is not None]
    if len(answered) < validator.min_judges:
        failed: Cause = next((run.cause for run in runs if run.result is None), "failed")
        return "failed" if failed == "passed" else failed
    # (3)
    yes = sum(_of_one(validator, run) == "passed" for run in runs)
    if max(yes, len(runs) - yes) / len(runs) < validator.min_agreement:
        return "disagreement"
    # (4)
    if validator.consensus == "unanimous":
        return "passed" if yes == len(runs) else "consensus"
    if validator.consensus == "majority":
        return "passed" if 2 * yes > len(runs) else "consensus"
    return enough(validator, _together(validator, answered))


def _together(validator: Validator, answered: Sequence[Result]) -> Result:
    """One result for all: the most confident one, or the mean weighted by confidence."""
    if validator.consensus == "best_of_n":
        return max(answered, key=lambda one: (one.confidence, -one.score))
    weight = sum(one.confidence for one in answered)
    score = sum(one.score * one.confidence for one in answered) / weight if weight else 0.0
    return Result(score=score, confidence=weight / len(answered), reasoning="")


def _of_one(validator: Validator, run: Ran) -> Cause:
    return run.cause if run.result is None else enough(validator, run.result)


def enough(validator: Validator, result: Result) -> Cause:
    """Whether one result meets both thresholds, and otherwise which it misses."""
    if result.score < validator.min_score:
        return "score"
    return "confidence" if result.confidence < validator.min_confidence else "passed"
