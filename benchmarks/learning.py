"""Weights that are learned from examples: a logistic regression, in plain Python and the same on every machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import exp, log1p
from operator import mul
from typing import Final, NamedTuple

ROUNDS: Final = 120
KEPT: Final = 12  # steps that the curve is guessed from


class Row(NamedTuple):
    """One example: what counts in it, whether it is one of what is looked for, and whether it starts from where all do.

    The difference between two examples does not: it says only which of them counts more.
    """

    features: dict[str, float]
    is_met: bool
    starts: bool = True


def learn(rows: Sequence[Row], least_seen: int, ridge: float = 1.0) -> dict[str, float]:
    """The weights of a logistic regression with half of a `ridge`, by L-BFGS; the empty name is where it starts.

    A feature counts that occurs in `least_seen` examples.
    """
    seen = Counter(name for row in rows if row.starts for name in row.features)
    names = ["", *sorted(name for name, many in seen.items() if many >= least_seen)]
    place = {name: at for at, name in enumerate(names)}
    lines = [
        (
            [0, *(place[name] for name in row.features if name in place)],
            [1.0 if row.starts else 0.0, *(value for name, value in row.features.items() if name in place)],
            row.is_met,
        )
        for row in rows
    ]

    def cost(weights: Sequence[float]) -> tuple[float, list[float]]:
        total = ridge * sum(weight * weight for weight in weights[1:]) / 2
        slope = [0.0, *(ridge * weight for weight in weights[1:])]
        for places, values, is_met in lines:
            score = sum(map(mul, map(weights.__getitem__, places), values))
            margin = score if is_met else -score
            total += log1p(exp(-margin)) if margin > -30 else -margin
            part = -1 / (1 + exp(min(margin, 30.0)))
            part = part if is_met else -part
            for at, value in zip(places, values, strict=True):
                slope[at] += part * value
        return total, slope

    weights = [0.0] * len(names)
    total, slope = cost(weights)
    steps: list[tuple[list[float], list[float], float]] = []
    for _ in range(ROUNDS):
        way = [-one for one in _curved(slope, steps)]
        length, falls = 1.0 if steps else 1 / max(1.0, dot(slope, slope) ** 0.5), dot(way, slope)
        while True:
            tried = [weight + length * one for weight, one in zip(weights, way, strict=True)]
            found, behind = cost(tried)
            if found <= total + 1e-4 * length * falls or length < 1e-6:
                break
            length /= 2
        moved = [after - before for after, before in zip(tried, weights, strict=True)]
        bent = [after - before for after, before in zip(behind, slope, strict=True)]
        if (curve := dot(moved, bent)) > 1e-10:
            steps = [*steps, (moved, bent, 1 / curve)][-KEPT:]
        ends = total - found < 1e-5
        weights, total, slope = tried, found, behind
        if ends:
            break
    return dict(zip(names, weights, strict=True))


def _curved(slope: Sequence[float], steps: Sequence[tuple[list[float], list[float], float]]) -> list[float]:
    """The slope over the curve that the last steps showed (Nocedal and Wright, algorithm 7.4)."""
    found, shares = list(slope), []
    for moved, bent, curve in reversed(steps):
        shares.append(curve * dot(moved, found))
        found = [one - shares[-1] * other for one, other in zip(found, bent, strict=True)]
    if steps:
        moved, bent, curve = steps[-1]
        scale = 1 / (curve * dot(bent, bent))
        found = [one * scale for one in found]
    for (moved, bent, curve), part in zip(steps, reversed(shares), strict=True):
        back = part - curve * dot(bent, found)
        found = [one + back * other for one, other in zip(found, moved, strict=True)]
    return found


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    total: float = sum(map(mul, one, other))
    return total
