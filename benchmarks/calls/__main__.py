"""Train and measure the scorer that says whether a call is likely dangerous.

    python -m benchmarks.calls --ordinary FOLDER [--write]

The calls lie in `pairs/`, one file a writer, one JSON object a line: `tool`, `bad` with the arguments that an operator
would want to be asked about, and `good` with those of a harmless twin, which may be another tool's (`good_tool`); or
`good` alone. All are invented for this purpose; `own` and `fed` hold calls that tests make and that have to pass. The
calls that the project's tests stop and let pass are learned from as well. What real files and documents look like is
learned from public repositories, whose clones lie in FOLDER (see `ordinary.json`).
Each part of the writers is scored by weights that were learned from the others, which tells what to expect of
strangers; `--write` learns from all and writes the weights that ship.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from aegis.detect.likely import Scorer, Weights, features_of, weight_of, weights_path
from benchmarks.calls.examples import (
    Example,
    Pair,
    harmless_of_tests,
    pairs_of,
    pairs_of_tests,
    rows_of,
    writers,
)
from benchmarks.calls.ordinary import ordinary
from benchmarks.learning import learn

TEXTS: Final = Path(__file__).parent / "pairs"
LEAST_SEEN: Final = 2  # calls in which a feature has to occur
RIDGE: Final = 1.0
PARTS: Final = 4  # of the writers, each scored by the others
LEAST: Final = 0.9  # what a dangerous call scores
TRIED: Final = (0.25, 0.5, LEAST, 1.0, 1.5)
ROUNDS: Final = 20
ROOM: Final = 0.15  # between what must pass and what is held
LIGHTEST: Final = 8  # hundredths below which a weight is left out: three of four, of which a call shows nothing


def weighed(tool: str, arguments: Mapping[str, Any]) -> dict[str, float]:
    """The features of a call with what each counts: the more there are, the less."""
    found = features_of(tool, arguments)
    return dict.fromkeys(sorted(found.names), weight_of(found.many))


def as_weights(learned: Mapping[str, float]) -> Weights:
    """Weights as they ship: hundredths by feature, without the lightest."""
    alone: defaultdict[str, dict[str, int]] = defaultdict(dict)
    of_two: defaultdict[str, defaultdict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for name, weight in learned.items():
        hundredths = round(100 * weight)
        if abs(hundredths) < LIGHTEST or not name:
            continue
        kind, first, *second = name.split(" ")
        if second:
            of_two[kind][first][second[0]] = hundredths
        else:
            alone[kind][first] = hundredths
    return Weights(
        about="Written by `python -m benchmarks.calls --write`: hundredths that a feature of a call adds.",
        least=LEAST,
        start=round(learned[""], 4),
        tokens=alone["tokens"],
        pairs=dict(of_two["pairs"]),
        phrases=dict(of_two["phrases"]),
        tools=alone["tools"],
        values=alone["values"],
        members=dict(of_two["members"]),
    )


def settled(learned: Mapping[str, float], harmless: Sequence[Pair]) -> dict[str, float]:
    """Weights by which no call that must pass comes near to what is held, each changed as little as that needs.

    The lightest are left out before, as they do not ship; rounding moves a score, hence the room (Crammer and others
    2006, algorithm PA).
    """
    weights = {name: weight for name, weight in learned.items() if not name or abs(100 * weight) >= LIGHTEST}
    for _ in range(ROUNDS):
        moved = False
        for pair in harmless:
            over = weights[""] + sum(weights.get(name, 0.0) * value for name, value in pair.good.items()) - LEAST + ROOM
            if over > 0:
                moved = True
                step = (over + ROOM) / sum(value * value for value in pair.good.values())
                for name, value in pair.good.items():
                    weights[name] = weights.get(name, 0.0) - step * value
        if not moved:
            break
    return weights


def scored(examples: Sequence[Example], weights: Weights) -> tuple[list[float], list[float]]:
    """What the dangerous calls score, and the harmless ones."""
    scorer = Scorer(weights)
    bad = [scorer.score(one.tool, one.bad) for one in examples if one.bad is not None]
    return bad, [scorer.score(one.good_tool or one.tool, one.good) for one in examples]


def main() -> None:
    """Measure each part of the writers by the others; where asked to, learn from all and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ordinary", type=Path, required=True, help="where the clones of public repositories lie")
    parser.add_argument("--write", action="store_true", help="learn from all and write, without measuring")
    asked = parser.parse_args()
    held = {writer: pairs_of(examples, weighed) for writer, examples in writers(TEXTS).items()}
    passing = pairs_of(harmless_of_tests(), weighed)
    others = chain(pairs_of_tests(), ordinary(asked.ordinary))
    common = [*rows_of(pairs_of(others, weighed)), *rows_of(passing)]
    if asked.write:
        every = list(chain.from_iterable(held.values()))
        alone = [pair for pair in every if pair.bad is None]  # a twin that is near to its other teaches by itself
        weights = as_weights(settled(learn([*common, *rows_of(every)], LEAST_SEEN, RIDGE), [*passing, *alone]))
        path = weights_path()
        path.write_bytes(msgspec.json.encode(weights) + b"\n")
        print(f"{path}: {path.stat().st_size} bytes, least {weights.least}")
        return
    found: dict[float, list[list[bool]]] = {least: [[], []] for least in TRIED}
    names = sorted(held)
    for part in range(PARTS):
        strange = names[part::PARTS]
        print(f"part {part + 1} of {PARTS}: {' '.join(strange)}", file=sys.stderr)
        known = chain.from_iterable(rows_of(held[name]) for name in names if name not in strange)
        weights = as_weights(settled(learn([*common, *known], LEAST_SEEN, RIDGE), passing))
        for name in strange:
            dangerous, harmless = scored([pair.example for pair in held[name]], weights)
            for least, (bad, good) in found.items():
                bad += [score >= least for score in dangerous]
                good += [score >= least for score in harmless]
    for least, (bad, good) in found.items():
        print(
            f"least {least}: {sum(bad) / max(1, len(bad)):.1%} of {len(bad)} dangerous calls of strangers, "
            f"{sum(good) / max(1, len(good)):.1%} of {len(good)} harmless ones"
        )


if __name__ == "__main__":
    main()
