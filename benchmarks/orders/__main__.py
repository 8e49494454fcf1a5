"""Train and measure the scorer that says whether a text orders about the machine that reads it.

    python -m benchmarks.orders [--write]

The texts lie in `texts/`, one file a writer, one JSON object a line: `label` (`poison` or `honest`), `text`, and in
`order` the injected order, word for word. All are invented for this purpose. The honest texts of the project's tests
are learned from as well. Each writer's texts are scored by weights that were learned from the others, which tells what
to expect of strangers; `--write` then learns from all and writes the weights that ship.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from aegis.detect.rules.order_scorer import OrderScorer, OrderWeights, kinds_in, sentences, share, weights_path
from benchmarks.learning import Row, learn

TEXTS: Final = Path(__file__).parent / "texts"
TESTS: Final = Path(__file__).parents[2] / "tests"
LEAST_SEEN: Final = 5  # sentences in which a feature has to occur
HONEST: Final = 0.02  # share of honest texts that may score as an order does


class Text(msgspec.Struct, frozen=True):
    """One text, and where it is poisoned the order in it."""

    label: str
    text: str
    order: str = ""


def writers(folder: Path = TEXTS) -> dict[str, list[Text]]:
    """The texts of each writer; raises `OSError` or `msgspec.DecodeError` for what cannot be read."""
    return {
        path.stem: [msgspec.json.decode(line, type=Text) for line in path.read_bytes().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def honest_of_tests() -> list[Text]:
    """The honest texts of the project's own tests: look-alikes of orders, and what everyday calls give back."""
    orders = yaml.safe_load((TESTS / "unit" / "detect" / "orders.yaml").read_text("utf-8"))
    results = yaml.safe_load((TESTS / "regression" / "results.yaml").read_text("utf-8"))
    found = [*strings_of(orders["honest"]), *strings_of(results["benign"])]
    for path in sorted((TESTS / "everyday").glob("*.yaml")):
        for entry in yaml.safe_load(path.read_text("utf-8")):
            if entry.get("shown", "allow") == "allow":
                found += strings_of(entry.get("result"))
    return [Text("honest", text) for text in found]


def strings_of(value: Any) -> list[str]:
    """All texts of a result."""
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in strings_of(one)]


def rows_of(text: Text) -> list[Row]:
    """The sentences of a text."""
    first = text.text.find(text.order) if text.order else -1
    last = first + len(text.order)
    parts = sentences(text.text)
    said = [kinds_in(text.text[part.start : part.end]) for part in parts]
    rows = []
    for at, part in enumerate(parts):
        features: dict[str, float] = {f"says {kind}": 1.0 for kind in said[at]}
        features |= {f"before {kind}": 1.0 for kind in (said[at - 1] if at else ())}
        features |= {f"after {kind}": 1.0 for kind in (said[at + 1] if at + 1 < len(parts) else ())}
        one = share(part.words)
        words = [f"words {word}" for word in part.words]
        words += [f"pairs {two} {three}" for two, three in pairwise(["^", *part.words])]
        features |= dict.fromkeys(words, one)
        inside = min(part.end, last) - max(part.start, first)
        rows.append(Row(features, first >= 0 and inside > (part.end - part.start) / 2))
    return rows


def as_weights(learned: Mapping[str, float], rows: Sequence[Row]) -> OrderWeights:
    """Weights as they ship, hundredths by feature and none of less than one; what is needed is not yet known."""
    parts: dict[str, dict[str, int]] = {name: {} for name in ("words", "pairs", "says", "before", "after")}
    for name, weight in learned.items():
        kind, _, feature = name.partition(" ")
        if kind and round(100 * weight):
            parts[kind][feature] = round(100 * weight)
    said = [
        sum(learned.get(name, 0.0) for name in row.features if name.startswith(("says ", "before ", "after ")))
        for row in rows
        if row.is_met
    ]
    about = "Written by `python -m benchmarks.orders --write`: hundredths that a feature of a sentence adds."
    return OrderWeights(about=about, least=0.0, start=round(learned[""], 4), most=round(max(said), 2), **parts)


def scores(texts: Sequence[Text], weights: OrderWeights) -> list[float]:
    """What the most suspicious sentence of each text scores, beyond what its length needs."""
    scorer = OrderScorer(weights)
    suspects = [scorer.suspect(text.text) for text in texts]
    return [-inf if suspect is None else suspect.beyond for suspect in suspects]


def main() -> None:
    """Measure each writer by the others; where asked to, learn from all and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    held = {writer: [(text, rows_of(text)) for text in texts] for writer, texts in writers().items()}
    common = [row for text in honest_of_tests() for row in rows_of(text)]
    strange: dict[str, list[tuple[float, bool]]] = {}
    for writer, texts in held.items():
        rows = common + [row for other, known in held.items() if other != writer for _, own in known for row in own]
        weights = as_weights(learn(rows, LEAST_SEEN), rows)
        found = scores([text for text, _ in texts], weights)
        strange[writer] = [(score, text.label == "poison") for score, (text, _) in zip(found, texts, strict=True)]
    every = [one for scored in strange.values() for one in scored]
    least = least_of(every)
    for name, scored in (*strange.items(), ("all", every)):
        orders = [score >= least for score, poisoned in scored if poisoned]
        honest = [score >= least for score, poisoned in scored if not poisoned]
        print(
            f"{name:10} orders found {sum(orders):4} of {len(orders):4}   "
            f"honest touched {sum(honest):3} of {len(honest):4}"
        )
    if asked.write:
        rows = common + [row for texts in held.values() for _, own in texts for row in own]
        weights = msgspec.structs.replace(as_weights(learn(rows, LEAST_SEEN), rows), least=least)
        weights_path().write_bytes(msgspec.json.format(msgspec.json.encode(weights), indent=1) + b"\n")
        print(f"{weights_path()}: {len(weights.words)} words, {len(weights.pairs)} pairs, least {least}")


def least_of(scored: Sequence[tuple[float, bool]]) -> float:
    """The score that no more than `HONEST` of the honest texts reach."""
    honest = sorted((score for score, poisoned in scored if not poisoned), reverse=True)
    return round(honest[int(HONEST * len(honest))] + 0.005, 2)


if __name__ == "__main__":
    main()
