"""How well a judge agrees with people: agreement, precision and recall at each threshold, and a reliability curve.

The class that counts is *rejected*: precision is the share of rejections that people share, recall the
share of what people reject that the judge rejects. A run that gave no answer rejects at every threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

THRESHOLDS: Final = tuple(step / 20 for step in range(1, 20))
BINS: Final = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """One labelled call and what the judge made of it; `score` is `None` where it gave no answer."""

    allow: bool
    score: float | None
    confidence: float = 0.0
    cause: str = "passed"
    seconds: float = 0.0
    tokens: int = 0
    cost: int = 0


def calibrate(rows: Sequence[Scored], *, min_confidence: float = 0.0) -> dict[str, Any]:
    """The figures over all labelled calls."""
    seconds = sorted(row.seconds for row in rows)
    return {
        "cases": len(rows),
        "answered": sum(row.score is not None for row in rows),
        "failures": _failures(rows),
        "thresholds": [_at(rows, threshold, min_confidence) for threshold in THRESHOLDS],
        "reliability": _reliability(rows),
        "latency_ms": {
            "median": round(1_000 * median(seconds)) if seconds else 0,
            "p95": round(1_000 * seconds[min(len(seconds) - 1, len(seconds) * 95 // 100)]) if seconds else 0,
        },
        "tokens": sum(row.tokens for row in rows),
        "cost": sum(row.cost for row in rows) / 1_000_000,
    }


def _at(rows: Sequence[Scored], threshold: float, min_confidence: float) -> dict[str, Any]:
    hit = wrong = missed = right = 0
    for row in rows:
        rejects = row.score is None or row.score < threshold or row.confidence < min_confidence
        if rejects and not row.allow:
            hit += 1
        elif rejects:
            wrong += 1
        elif not row.allow:
            missed += 1
        else:
            right += 1
    return {
        "threshold": threshold,
        "agreement": _share(hit + right, len(rows)),
        "precision": _share(hit, hit + wrong),
        "recall": _share(hit, hit + missed),
    }


def _share(part: int, whole: int) -> float | None:
    """`None` where there is nothing to take a share of."""
    return round(part / whole, 4) if whole else None


def _failures(rows: Sequence[Scored]) -> dict[str, int]:
    causes = [row.cause for row in rows if row.score is None]
    return {cause: causes.count(cause) for cause in sorted(set(causes))}


def _reliability(rows: Sequence[Scored]) -> list[dict[str, Any]]:
    """For each tenth of scores: their mean, and the share of those calls that people allow."""
    found = []
    for number in range(BINS):
        inside = [row for row in rows if row.score is not None and min(BINS - 1, int(row.score * BINS)) == number]
        if inside:
            mean = sum(row.score or 0.0 for row in inside) / len(inside)
            allowed = sum(row.allow for row in inside) / len(inside)
            found.append({"score": round(mean, 4), "allowed": round(allowed, 4), "cases": len(inside)})
    return found


def reliability_svg(reliability: Sequence[dict[str, Any]], title: str) -> str:
    """The reliability curve as a small drawing: on the diagonal, a score says how often people allow."""
    size, edge = 320, 40
    inner = size - 2 * edge

    def place(x: float, y: float) -> tuple[float, float]:
        return round(edge + x * inner, 1), round(size - edge - y * inner, 1)

    points = [place(one["score"], one["allowed"]) for one in reliability]
    line = " ".join(f"{x},{y}" for x, y in points)
    sizes = [one["cases"] for one in reliability]
    dots = "".join(
        f'<circle cx="{x}" cy="{y}" r="{3 + min(7, count**0.5):.1f}"><title>{count} cases</title></circle>'
        for (x, y), count in zip(points, sizes, strict=True)
    )
    ticks = "".join(
        f'<text x="{place(step / 5, 0)[0]}" y="{size - edge + 16}" text-anchor="middle">{step / 5:g}</text>'
        f'<text x="{edge - 8}" y="{place(0, step / 5)[1] + 4}" text-anchor="end">{step / 5:g}</text>'
        for step in range(6)
    )
    (left, bottom), (right, top) = place(0, 0), place(1, 1)
    name = "".join(sign for sign in title if sign.isalnum() or sign in " ._-")[:60]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}" role="img" font-family="sans-serif" '
        f'font-size="11"><title>Reliability of {name}</title><rect width="{size}" height="{size}" fill="#fff"/>'
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#555"/>'
        f'<path d="M{left} {bottom}L{right} {top}" stroke="#999" stroke-dasharray="4 4"/>'
        f'<polyline points="{line}" fill="none" stroke="#0a6" stroke-width="2"/><g fill="#0a6">{dots}</g>{ticks}'
        f'<text x="{size / 2}" y="{size - 6}" text-anchor="middle">score of the judge</text>'
        f'<text x="12" y="{size / 2}" text-anchor="middle" transform="rotate(-90 12 {size / 2})">'
        f"share that people allow</text></svg>\n"
    )
