"""One process of a gateway against two, over SQLite and PostgreSQL, by turns; the generator is on the same machine."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.deployments import CONFIG, cpu_seconds, made_key, serving, write
from benchmarks.load import Load, request
from benchmarks.sections import CALL, load

POSTGRES: Final = "AEGIS_BENCH_POSTGRES"  # the URL of an empty database with fsync on; without it there is no such part
CONNECTIONS: Final = 32
ROUNDS: Final = 5
_COUNTS: Final = (1, 2)


def processes(folder: Path, quick: bool) -> dict[str, Any]:
    """Decisions a second, latencies and processor time of one process and of two, in turns, and their ratio."""
    found = {"sqlite": _compared(folder / "sqlite", "", quick)}
    url = os.environ.get(POSTGRES)
    if url is not None:
        found["postgres"] = _compared(folder / "postgres", f"store: {json.dumps(url)}\n", quick)
    return found


def _compared(folder: Path, store: str, quick: bool) -> dict[str, Any]:
    seconds, rounds = (1.0, 2) if quick else (4.0, ROUNDS)
    many: dict[int, list[Load]] = {count: [] for count in _COUNTS}
    spent: dict[int, list[float]] = {count: [] for count in _COUNTS}
    config = write(folder, CONFIG.format(durability="fsync") + store)
    key = made_key(folder, "agent")
    data = request(key, json.dumps(CALL).encode())
    alone: Load | None = None
    for _ in range(rounds):  # one after the other: what is idle would still share the machine
        for count in _COUNTS:
            with _serving(config, folder, count) as (port, pid):
                load(("127.0.0.1", port), data, connections=CONNECTIONS, seconds=seconds / 4)
                before = _processor_time(pid)
                run = load(("127.0.0.1", port), data, connections=CONNECTIONS, seconds=seconds)
                many[count].append(run)
                spent[count].append((_processor_time(pid) - before) / max(1, len(run.latencies)) * 1e6)
                if count == 1:
                    alone = load(("127.0.0.1", port), data, connections=1, seconds=seconds)
    assert alone is not None
    return {
        "sequential": alone.to_json(),
        **{
            f"{count}": {
                **sorted(many[count], key=lambda one: one.per_second)[rounds // 2].to_json(),
                "processor_us": round(median(spent[count])),
            }
            for count in _COUNTS
        },
        "two_over_one": round(median(b.per_second / a.per_second for a, b in zip(many[1], many[2], strict=True)), 2),
    }


@contextlib.contextmanager
def _serving(config: Path, home: Path, count: int) -> Iterator[tuple[int, int]]:
    with serving(config, home, count) as (port, process):
        while len(_children(process.pid)) < count * (count > 1):
            time.sleep(0.05)
        time.sleep(1.0)  # the second decides as soon as it hears the front
        yield port, process.pid


def _children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in listed.stdout.split()]


def _processor_time(pid: int) -> float:
    return sum(map(cpu_seconds, (pid, *_children(pid))))
