"""Whether a call is like what a user asked for: a small trained matcher over counts, which holds no word of anybody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import yaml

from aegis.policy.dataflow.declare import name_words
from aegis.policy.dataflow.words import TrustedWords, lexicon_folder, same_things, stem

MAX_VALUES: Final = 64  # of one call that are counted


@cache
def weights() -> dict[str, Any]:
    """The trained weights, read once."""
    value: dict[str, Any] = yaml.load((lexicon_folder() / "licence.yaml").read_text("utf-8"), yaml.CSafeLoader)
    return value


def features(words: TrustedWords, tool: str, values: Sequence[str]) -> tuple[float, ...]:
    """Thirteen numbers about a call and a user's words."""
    said = words.said
    stems = said | {stem(word) for word in said}
    name = name_words(tool)
    stem_names = {stem(word) for word in name}
    hits = [word in stems or stem(word) in stems for word in name]
    lead = bool(hits) and hits[0]
    objects = sum(hits[1:]) if len(hits) > 1 else 0
    same = not same_things(tuple(name)).isdisjoint(said)
    short = [one for one in values if 0 < len(one) <= 160][:MAX_VALUES]
    covered = [words.covers(one) for one in short]
    texts = [one for one in short if not one.replace(".", "").isdigit()]
    told = [words.covers(one) for one in texts]
    parts = [part for one in texts for part in one.lower().split()][:256]
    part = sum(one.strip(".,;:!?\"'") in said for one in parts) / len(parts) if parts else 0.0
    share = sum(covered) / len(covered) if covered else 0.0
    one_sentence = any(len(stem_names & {stem(word) for word in sentence}) >= 2 for sentence in words.sentences)
    return (
        1.0,
        float(lead),
        float(objects > 0),
        objects / max(1, len(name) - 1),
        sum(hits) / max(1, len(name)),
        float(same),
        float(one_sentence),
        share,
        sum(told) / len(texts) if texts else 0.0,
        float(bool(covered) and all(covered)),
        part,
        float(not short),
        min(1.0, math.log1p(len(said)) / 6),
    )


def shortfall(words: TrustedWords, tool: str, values: Sequence[str], needed: str) -> float:
    """What a call lacks to be taken for one that these words ask for, 0 where nothing; `needed` names the score."""
    trained = weights()
    score = sum(weight * one for weight, one in zip(trained["weights"], features(words, tool, values), strict=True))
    return max(0.0, float(trained[needed]) - float(score))
