"""Timings as medians and percentiles; ratios are what travels between machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypedDict


class Timing(TypedDict):
    """Microseconds over `n` runs."""

    n: int
    p50: float
    p95: float
    p99: float


def timing(nanoseconds: Sequence[int]) -> Timing:
    """Percentiles, in microseconds, of durations in nanoseconds."""
    ordered = sorted(nanoseconds)
    return Timing(n=len(ordered), p50=_at(ordered, 0.50), p95=_at(ordered, 0.95), p99=_at(ordered, 0.99))


def measure(work: Callable[[], object], *, runs: int, warmup: int = 50) -> Timing:
    """Time `work` `runs` times, one at a time, after `warmup` runs that do not count."""
    for _ in range(warmup):
        work()
    spent: list[int] = []
    clock = time.perf_counter_ns
    for _ in range(runs):
        start = clock()
        work()
        spent.append(clock() - start)
    return timing(spent)


def interleave(works: dict[str, Callable[[], object]], *, rounds: int, runs: int) -> dict[str, Timing]:
    """Time several works in turns, so that a machine whose speed drifts drifts for all of them."""
    spent: dict[str, list[int]] = {name: [] for name in works}
    clock = time.perf_counter_ns
    for work in works.values():
        for _ in range(50):
            work()
    for _ in range(rounds):
        for name, work in works.items():
            bucket = spent[name]
            for _ in range(runs):
                start = clock()
                work()
                bucket.append(clock() - start)
    return {name: timing(bucket) for name, bucket in spent.items()}


def _at(ordered: Sequence[int], share: float) -> float:
    return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1_000, 2)
