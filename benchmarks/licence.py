"""Train and measure the matcher that says whether a call is like what a user asked for.

    python -m benchmarks.licence FOLDER [--write]

FOLDER holds records of public corpora that the reader has, one JSON object a line: `tool`, `args`, `label`, `id` and
`context.user_task`, the prompt that the call belongs to. One half trains, the other measures. A call is paired with its
own prompt, and with prompts of other records; nothing of either is kept, only weights of counts and four thresholds.
Without `--write` the shipped weights are measured.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.forms import tables_folder
from aegis.policy.dataflow.licence import FlowCall, features, is_licensed, licence_needed, matcher, score
from aegis.policy.dataflow.words import TrustedWords, read_words

SOURCES: Final = ("bfcl", "tau_bench", "api_bank")
SEED: Final = 7
OTHERS: Final = 3  # prompts of other records that a call is paired with
ROUNDS: Final = 12
RIDGE: Final = 1.0  # how much a weight costs
# Shares of foreign pairs that may be taken for asked where no strong verb was said: where a verb of most requests was,
# and where none was, by what the tool does.
WRONG: Final = {"made": 0.25, "read": 0.025, "other": 0.02, "known": 0.01}


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


def numbers(sample: Sample) -> dict[str, float]:
    """The features of one pair."""
    return features(sample.words, sample.call.tool, sample.call.does, sample.call.arguments)


def train(pairs: Sequence[Sample]) -> dict[str, float]:
    """Weights of a logistic regression by Newton's method; own and foreign pairs count the same in sum."""
    found = [(numbers(one), one.own) for one in pairs]
    names = list(found[0][0])
    many = {own: sum(1 for _, mine in found if mine is own) for own in (True, False)}
    rows = [([row[name] for name in names], own, len(found) / 2 / many[own]) for row, own in found]
    weights = [0.0] * len(names)
    places = range(len(names))
    for _ in range(ROUNDS):
        gradient = [-RIDGE * weight for weight in weights]
        curve = [[RIDGE if one == other else 0.0 for other in places] for one in places]
        for row, own, count in rows:
            total = sum(weight * one for weight, one in zip(weights, row, strict=True))
            chance = 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))
            slope, bend = count * (own - chance), count * chance * (1 - chance)
            held = [(at, one) for at, one in enumerate(row) if one]
            for at, one in held:
                gradient[at] += slope * one
                line, part = curve[at], bend * one
                for to, other in held:
                    line[to] += part * other
        weights = [weight + step for weight, step in zip(weights, solved(curve, gradient), strict=True)]
    return {name: round(weight, 4) for name, weight in zip(names, weights, strict=True)}


def solved(matrix: list[list[float]], wanted: list[float]) -> list[float]:
    """The vector that the matrix turns into the wanted one, by elimination; the matrix is positive definite."""
    rows = [[*line, value] for line, value in zip(matrix, wanted, strict=True)]
    for at, pivot in enumerate(rows):
        for below in rows[at + 1 :]:
            share = below[at] / pivot[at]
            for to in range(at, len(pivot)):
                below[to] -= share * pivot[to]
    found = [0.0] * len(rows)
    for at in range(len(rows) - 1, -1, -1):
        rest = sum(rows[at][to] * found[to] for to in range(at + 1, len(rows)))
        found[at] = (rows[at][-1] - rest) / rows[at][at]
    return found


def thresholds(pairs: Sequence[Sample], weights: Mapping[str, float]) -> dict[str, float]:
    """The scores that so many foreign pairs of each sort reach as `WRONG` says."""
    found: dict[str, float] = {}
    for sort, share in WRONG.items():
        foreign = [pair for pair in pairs if not pair.own and licence_needed(pair.call, pair.words) == sort]
        scores = sorted((score(weights, numbers(pair)) for pair in foreign), reverse=True)
        found[sort] = round(scores[int(share * len(scores))] + 0.0001, 4)
    return found


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
        lines = [f"  {name}: {weight}" for name, weight in weights.items()]
        (tables_folder() / "licence.yaml").write_text(
            "# Written by `python -m benchmarks.licence FOLDER --write`: weights of counts, and the scores needed.\n"
            f"version: 2\nneeded: {json.dumps(thresholds(pairs, weights))}\nweights:\n" + "\n".join(lines) + "\n"
        )
        matcher.cache_clear()
    for half in ("A", "B"):
        for source, (own, foreign) in measure(samples(asked.folder, half)).items():
            print(f"{half} {source:10} own {own:6.1%}   foreign {foreign:6.1%}")


if __name__ == "__main__":
    main()
