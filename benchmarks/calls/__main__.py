"""Train and measure the scorer that says whether a call with structured arguments is likely dangerous.

    python -m benchmarks.calls [--write]

The calls lie in `texts/`, one file a writer, one JSON object a line: `tool`, `bad` with the arguments that an operator
would want to be asked about, and `good` with those of a harmless twin, which may be another tool's (`good_tool`); or
`good` alone. All are invented for this purpose. The calls that the project's tests let pass are learned
from as well.
Each part of the writers is scored by weights that were learned from the others, which tells what to expect of
strangers; `--write` learns from all and writes the weights that ship.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from aegis.detect.likely import CallScorer, CallWeights, features_of, weight_of, weights_path
from benchmarks.calls.examples import Example, harmless_of_tests, pairs_of, rows_of, writers
from benchmarks.learning import learn

TEXTS: Final = Path(__file__).parent / "texts"
LEAST_SEEN: Final = 2  # calls in which a feature has to occur
RIDGE: Final = 1 / 3
PARTS: Final = 4  # of the writers, each scored by the others
LEAST: Final = 1.0  # what a dangerous call scores: more than all but a few in a thousand harmless ones of strangers
TRIED: Final = (0.6, 0.8, LEAST, 1.2, 1.5)
LIGHTEST: Final = 6  # hundredths below which a weight is left out


def weighed(tool: str, arguments: Mapping[str, Any]) -> dict[str, float]:
    """The features of a call with what each counts: the more there are, the less."""
    found = features_of(tool, arguments)
    each = weight_of(len(found))
    return {" ".join(feature).rstrip(): each for feature in sorted(found)}


def as_weights(learned: Mapping[str, float]) -> CallWeights:
    """Weights as they ship: hundredths by feature, without the lightest."""
    tools: dict[str, int] = {}
    values: dict[str, int] = {}
    members: dict[str, dict[str, int]] = {}
    for name, weight in learned.items():
        kind, _, feature = name.partition(" ")
        hundredths = round(100 * weight)
        if abs(hundredths) < LIGHTEST or not kind:
            continue
        if kind == "members":
            word, _, token = feature.partition(" ")
            members.setdefault(word, {})[token] = hundredths
        else:
            (tools if kind == "tools" else values)[feature] = hundredths
    about = "Written by `python -m benchmarks.calls --write`: hundredths that a feature of a call adds."
    return CallWeights(
        about=about, least=LEAST, start=round(learned[""], 4), tools=tools, values=values, members=members
    )


def scored(examples: Sequence[Example], weights: CallWeights) -> tuple[list[bool], list[bool]]:
    """Which dangerous calls are likely some, and which harmless ones."""
    scorer = CallScorer(weights)
    bad = [scorer.likely(one.tool, one.bad) is not None for one in examples if one.bad is not None]
    return bad, [scorer.likely(one.good_tool or one.tool, one.good) is not None for one in examples]


def main() -> None:
    """Measure each part of the writers by the others; where asked to, learn from all and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="learn from all and write, without measuring")
    asked = parser.parse_args()
    held = {writer: pairs_of(examples, weighed) for writer, examples in writers(TEXTS).items()}
    common = rows_of(pairs_of(harmless_of_tests(), weighed))
    if asked.write:
        weights = as_weights(learn([*common, *chain.from_iterable(map(rows_of, held.values()))], LEAST_SEEN, RIDGE))
        weights_path("calls").write_bytes(msgspec.json.encode(weights) + b"\n")
        count = len(weights.tools) + len(weights.values) + sum(map(len, weights.members.values()))
        print(f"{weights_path('calls')}: {count} weights, least {weights.least}")
        return
    found: dict[float, list[list[bool]]] = {least: [[], [], []] for least in TRIED}
    names = sorted(held)
    for part in range(PARTS):
        strange = names[part::PARTS]
        print(f"part {part + 1} of {PARTS}: {' '.join(strange)}", file=sys.stderr)
        known = chain.from_iterable(rows_of(held[name]) for name in names if name not in strange)
        weights = as_weights(learn([*common, *known], LEAST_SEEN, RIDGE))
        for least, (bad, twins, alone) in found.items():
            tried = msgspec.structs.replace(weights, least=least)
            for name in strange:
                dangerous, harmless = scored([pair.example for pair in held[name]], tried)
                bad += dangerous
                (twins if dangerous else alone).extend(harmless)
    for least, (bad, twins, alone) in found.items():
        shares = [sum(several) / max(1, len(several)) for several in (bad, twins, alone)]
        print(
            f"least {least}: {shares[0]:.1%} of {len(bad)} dangerous calls of strangers, {shares[1]:.1%} of their "
            f"{len(twins)} twins, {shares[2]:.1%} of {len(alone)} other harmless calls"
        )


if __name__ == "__main__":
    main()
