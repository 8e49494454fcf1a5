"""Weights that are learned from examples: a logistic regression."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy
from scipy.optimize import minimize
from scipy.sparse import csr_array

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
    table = _table([{"": 1.0 if row.starts else 0.0, **row.features} for row in rows], place)
    signs = numpy.array([1.0 if row.is_met else -1.0 for row in rows])
    held = numpy.full(len(names), ridge)
    held[0] = 0.0

    def cost(weights: Any) -> tuple[float, Any]:
        margins = signs * (table @ weights)
        parts = -signs / (1 + numpy.exp(numpy.clip(margins, -30, 30)))
        lost = numpy.logaddexp(0, -margins).sum() + (held * weights * weights).sum() / 2
        return float(lost), table.T @ parts + held * weights

    options = {"maxiter": ROUNDS, "maxcor": KEPT}
    found = minimize(cost, numpy.zeros(len(names)), jac=True, method="L-BFGS-B", options=options)
    return dict(zip(names, map(float, found.x), strict=True))


def _table(rows: Sequence[dict[str, float]], place: dict[str, int]) -> Any:
    """What counts in each example, a line each, with a column a feature."""
    columns: list[int] = []
    values: list[float] = []
    ends = [0]
    for row in rows:
        known = [(place[name], value) for name, value in row.items() if name in place]
        columns += [column for column, _ in known]
        values += [value for _, value in known]
        ends.append(len(columns))
    return csr_array((values, columns, ends), shape=(len(rows), len(place)))
