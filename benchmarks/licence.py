"""Train and measure the matcher that says whether a call is like what a user asked for.

    python -m benchmarks.licence FOLDER [--write]

FOLDER holds records of public corpora that the reader has, one JSON object a line: `tool`, `args`, `label`, `id` and
`context.user_task`, the prompt that the call belongs to. One half trains, the other measures. A call is paired with its
own prompt, and with prompts of other records; nothing of either is kept, only thirteen weights and two thresholds.
Without `--write` the shipped weights are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.judge import FlowCall, is_licensed
from aegis.policy.dataflow.licence import features
from aegis.policy.dataflow.words import TrustedWords, lexicon_folder, read_words

SOURCES: Final = ("bfcl", "tau_bench", "api_bank")
SEED: Final = 7
OTHERS: Final = 3  # prompts of other records that a call is paired with
ROUNDS: Final = 400
RATE: Final = 0.5
WRONG: Final = 0.02  # share of foreign calls that the matcher may take for asked
WRONG_SAID: Final = 0.25  # the same where a verb that most requests have was said
WRONG_KNOWN: Final = 0.002  # the same where the tool's kind is known and its verbs were not said


class Sample(NamedTuple):
    """One call and one prompt; `own` says that they belong together."""

    call: FlowCall
    words: TrustedWords
    own: bool
    source: str


def samples(folder: Path, half: str) -> list[Sample]:
    """The calls of one half, each with its own prompt and with some of others."""
    chance = random.Random(SEED)
    found: list[Sample] = []
    held: dict[str, list[dict[str, Any]]] = {}
    for source in SOURCES:
        held[source] = []
        for line in (folder / f"{source}.jsonl").read_text("utf-8").splitlines():
            record = json.loads(line)
            mine = "AB"[blake2b(record["id"].encode(), digest_size=1).digest()[0] & 1]
            if record["label"] == "benign" and mine == half and record["context"].get("user_task"):
                held[source].append(record)
    prompts = [record["context"]["user_task"] for records in held.values() for record in records]
    for source, records in held.items():
        for record in records:
            call = FlowCall(tool=record["tool"], arguments=record["args"], flow=NOTHING)
            own = record["context"]["user_task"]
            found.append(Sample(call, read_words([own]), True, source))
            others = [prompt for prompt in chance.sample(prompts, min(len(prompts), 4 * OTHERS)) if prompt != own]
            found.extend(Sample(call, read_words([prompt]), False, source) for prompt in others[:OTHERS])
    return found


def numbers(sample: Sample) -> tuple[float, ...]:
    """The features of one pair."""
    return features(sample.words, sample.call.tool, sample.call.texts)


def train(pairs: Sequence[Sample]) -> list[float]:
    """Weights by plain gradient descent; own and foreign pairs count the same in sum."""
    rows = [(numbers(one), one.own) for one in pairs]
    many = {own: sum(1 for _, found in rows if found is own) for own in (True, False)}
    weights = [0.0] * len(rows[0][0])
    for _ in range(ROUNDS):
        gradient = [0.0] * len(weights)
        for row, own in rows:
            score = sum(weight * one for weight, one in zip(weights, row, strict=True))
            error = ((1.0 if own else 0.0) - 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))) / many[own]
            for at, one in enumerate(row):
                gradient[at] += error * one
        weights = [weight + RATE * (step - 0.0005 * weight) for weight, step in zip(weights, gradient, strict=True)]
    return [round(weight, 4) for weight in weights]


def threshold(pairs: Sequence[Sample], weights: Sequence[float], wrong: float) -> float:
    """The score that at most this share of foreign pairs reaches."""
    scores = sorted(
        sum(weight * one for weight, one in zip(weights, numbers(pair), strict=True)) for pair in pairs if not pair.own
    )
    return round(scores[min(len(scores) - 1, int((1 - wrong) * len(scores)))] + 0.0001, 4)


def measure(pairs: Sequence[Sample]) -> dict[str, tuple[float, float]]:
    """Per source: the share of own pairs that are licensed, and of foreign ones."""
    shares: dict[str, tuple[float, float]] = {}
    for source in (*SOURCES, ""):
        rates: list[float] = []
        for own in (True, False):
            found = [one for one in pairs if one.own is own and source in {one.source, ""}]
            rates.append(sum(is_licensed(one.call, one.words) for one in found) / max(1, len(found)))
        shares[source or "all"] = (rates[0], rates[1])
    return shares


def main() -> None:
    """Train where asked to, and print what the weights do on the other half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    if asked.write:
        pairs = samples(asked.folder, "A")
        weights = train(pairs)
        usual, known = threshold(pairs, weights, WRONG), threshold(pairs, weights, WRONG_KNOWN)
        said = threshold(pairs, weights, WRONG_SAID)
        (lexicon_folder() / "licence.yaml").write_text(
            "# Written by `python -m benchmarks.licence FOLDER --write`: weights, and the scores that are needed.\n"
            f"version: 1\nweights: {json.dumps(weights)}\nthreshold: {usual}\nknown: {known}\nsaid: {said}\n"
        )
    for half in ("A", "B"):
        for source, (own, foreign) in measure(samples(asked.folder, half)).items():
            print(f"{half} {source:10} own {own:6.1%}   foreign {foreign:6.1%}")


if __name__ == "__main__":
    main()
