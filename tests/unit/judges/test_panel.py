"""Consensus: thresholds hold with `>=`, a judge that failed never helps, disagreement goes to a person."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aegis.core.judging import Consensus, JudgeSpec, Validator
from aegis.judges.run import agree
from aegis.judges.values import Cause, JudgeRan, Result

FAILED = -1.0
RULES: tuple[Consensus, ...] = ("weighted_average", "majority", "unanimous", "best_of_n")


def runs(*scores: float | tuple[float, float]) -> list[JudgeRan]:
    made = []
    for number, score in enumerate(scores):
        value, confidence = score if isinstance(score, tuple) else (score, 1.0)
        result = None if value == FAILED else Result(score=value, confidence=confidence, reasoning="")
        made.append(
            JudgeRan(judge=f"j{number}", run_id="r", cause="timeout" if result is None else "passed", result=result)
        )
    return made


def validator(count: int, **members: Any) -> Validator:
    judges = tuple(JudgeSpec(name=f"j{number}", version="v") for number in range(count))
    return Validator(name="v", judges=judges, **members)


def of(consensus: Consensus, *scores: float | tuple[float, float], **members: Any) -> Cause:
    return agree(validator(len(scores), consensus=consensus, **members), runs(*scores))


def test_both_thresholds_hold_with_at_least() -> None:
    one = validator(1, min_score=0.7, min_confidence=0.5)
    assert agree(one, runs((0.7, 0.5))) == "passed"
    assert agree(one, runs((0.6999, 1.0))) == "score"
    assert agree(one, runs((1.0, 0.4999))) == "confidence"
    assert agree(one, runs(FAILED)) == "timeout"


def test_each_rule_counts_in_its_own_way() -> None:
    assert of("unanimous", 0.9, 0.9, 0.9) == "passed"
    assert of("unanimous", 0.9, 0.9, 0.1) == "consensus"
    assert of("majority", 0.9, 0.9, 0.1) == "passed"
    assert of("majority", 0.9, 0.1) == "consensus"
    assert of("weighted_average", (1.0, 0.9), (0.0, 0.1)) == "passed"
    assert of("weighted_average", (1.0, 0.1), (0.0, 0.9)) == "score"
    assert of("best_of_n", (1.0, 0.9), (0.0, 0.1)) == "passed"
    assert of("best_of_n", (1.0, 0.1), (0.0, 0.9)) == "score"


@pytest.mark.parametrize("consensus", RULES)
def test_too_few_answers_reject_with_the_cause_of_the_failure(consensus: Consensus) -> None:
    assert of(consensus, 0.9, FAILED, 0.9, min_judges=3) == "timeout"


def test_a_failed_judge_counts_as_a_no() -> None:
    assert of("majority", 0.9, 0.9, FAILED, min_judges=2) == "passed"
    assert of("majority", 0.9, FAILED, min_judges=1) == "consensus"
    assert of("unanimous", 0.9, FAILED, min_judges=1) == "consensus"


@pytest.mark.parametrize("consensus", RULES)
def test_disagreement_goes_to_a_person(consensus: Consensus) -> None:
    assert of(consensus, 0.9, 0.1, min_agreement=0.6) == "disagreement"
    assert of(consensus, 0.9, 0.9, 0.9, min_agreement=0.9) == "passed"


@given(st.sampled_from(RULES), st.lists(st.sampled_from([FAILED, 0.0, 0.3]), min_size=2, max_size=6))
def test_judges_of_whom_none_said_yes_never_pass(consensus: Consensus, scores: list[float]) -> None:
    assert of(consensus, *scores, min_judges=1) != "passed"


@given(st.sampled_from(RULES), st.lists(st.floats(0, 1), min_size=2, max_size=6), st.integers(0, 5))
def test_a_lower_score_never_turns_a_no_into_a_yes(consensus: Consensus, scores: list[float], place: int) -> None:
    if consensus == "best_of_n":  # the most confident one decides, and all are equally confident here
        return
    lower = [0.0 if position == place % len(scores) else score for position, score in enumerate(scores)]
    if of(consensus, *scores) != "passed":
        assert of(consensus, *lower) != "passed"
