from __future__ import annotations

from typing import get_args

import pytest

from aegis.core.outcome import EFFECTS, ROLES, Effect, Outcome, Risk, Role, Verdict, outcome_of, risk_of, verdict_of


def test_outcomes_are_ordered_from_least_to_most_restrictive() -> None:
    assert [outcome.word for outcome in sorted(Outcome)] == ["allow", "sanitize", "require_approval", "block"]


def test_verdicts_are_ordered_so_that_a_violation_outweighs_missing_evidence() -> None:
    assert [verdict.word for verdict in sorted(Verdict)] == ["compliant", "insufficient_evidence", "violation"]


def test_tiers_are_numbered_from_zero() -> None:
    assert [(risk.value, risk.word) for risk in Risk] == [(0, "low"), (1, "medium"), (2, "high"), (3, "critical")]


def test_words_name_their_members() -> None:
    assert [outcome_of(outcome.word) for outcome in Outcome] == list(Outcome)
    assert [risk_of(risk.word) for risk in Risk] == list(Risk)
    assert [verdict_of(verdict.word) for verdict in Verdict] == list(Verdict)


@pytest.mark.parametrize("word", ["", "ALLOW", "deny", "0", "allow "])
def test_no_other_word_is_read(word: str) -> None:
    for read in (outcome_of, risk_of, verdict_of):
        with pytest.raises(ValueError, match="is not"):
            read(word)


def test_closed_sets_list_every_member_of_their_type() -> None:
    assert get_args(Effect) == EFFECTS
    assert get_args(Role) == ROLES
