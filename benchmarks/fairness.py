"""What one principal can do to the others: their median decision and `/healthz` while it sends the worst that it may.

    python -m benchmarks.fairness [ATTACK ...]

Every attack comes from a process of its own, over many connections, with rates lifted. Quiet phases lie before and
after each one, in the same run, so that what is compared was measured on the same machine in the same minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.deployments import CONFIG, made_key, serving, write
from benchmarks.hostile import PIECES, filled
from benchmarks.load import request, run

SECONDS: Final = 6.0  # of each attack
PAUSE_S: Final = 0.02  # between two questions of whoever is measured
KIB: Final = 1_024
CALL: Final = json.dumps({"tool": "read_file", "arguments": {"path": "reports/summary.md"}}).encode()

_NESTED: Final = b",".join([b"[[[[[[[[[[]]]]]]]]]]"] * 180_000)

Section = dict[str, Any]


def _call(arguments: dict[str, Any], tool: str = "run_sql") -> bytes:
    return json.dumps({"tool": tool, "arguments": arguments}).encode()


def _batch(count: int, arguments: dict[str, Any], tool: str = "run_sql") -> bytes:
    return json.dumps({"calls": [{"tool": tool, "arguments": arguments}] * count}).encode()


def _statement(size: int) -> str:
    return filled(PIECES["statements"], size)


# An attack: the path, the body, and over how many connections it is sent again and again.
ATTACKS: Final[dict[str, tuple[str, Callable[[], bytes], int]]] = {
    "batches of SQL": ("/v1/decisions:batch", lambda: _batch(250, {"sql": _statement(14 * KIB)}), 4),
    "batches of commands": (
        "/v1/decisions:batch", lambda: _batch(250, {"command": filled(PIECES["commands"], 14 * KIB)}, "bash"), 4,
    ),
    "batches of small calls": ("/v1/decisions:batch", lambda: _batch(256, {"path": "a/b.txt"}, "read_file"), 8),
    "calls of 1 KiB of SQL": ("/v1/decisions", lambda: _call({"sql": _statement(KIB)}), 32),
    "calls of 900 KiB": ("/v1/decisions", lambda: _call({"text": filled(PIECES["prose"], 900 * KIB)}, "note"), 8),
    "calls of 4 MiB of numbers": ("/v1/decisions", lambda: _call({"a": [[1.5] * 9_000] * 80}, "note"), 8),
    "calls of deep nesting": (
        "/v1/decisions", lambda: b'{"tool":"note","arguments":{"a":[%s]}}' % _NESTED,
        8,
    ),
    "permits of 4 MiB": (
        "/v1/permits/verify",
        lambda: json.dumps({"permit": "a.b.c", "tool": "note", "arguments": {"a": [[1.5] * 9_000] * 80}}).encode(), 8,
    ),
    "small calls over 200 connections": ("/v1/decisions", lambda: CALL, 200),
}  # fmt: skip


def fairness(folder: Path, quick: bool, names: tuple[str, ...] = ()) -> Section:
    """Medians and the slowest hundredth of another agent's decisions and of `/healthz`, quiet and under each attack."""
    seconds = SECONDS / 2 if quick else SECONDS
    result: Section = {}
    with _gateway(folder) as (port, victim, attacker):
        _measure(port, victim, 1.0)
        for name in names or ATTACKS:
            path, body, connections = ATTACKS[name]
            before = _measure(port, victim, seconds / 2)
            data = request(attacker, body(), path)
            process = multiprocessing.get_context("spawn").Process(
                target=_attack, args=(port, data, connections, seconds + 1.0), daemon=True
            )
            process.start()
            time.sleep(1.0)
            during = _measure(port, victim, seconds)
            process.join()
            time.sleep(1.0)
            after = _measure(port, victim, seconds / 2)
            result[name] = _row(before, during, after)
            print(f"{name}: {result[name]}", file=sys.stderr, flush=True)
    return result


def _row(before: Section, during: Section, after: Section) -> Section:
    quiet = statistics.median([*before["decide"], *after["decide"]])
    return {
        "decide_quiet_ms": round(quiet, 2),
        "decide_ms": round(statistics.median(during["decide"]), 2),
        "decide_ratio": round(statistics.median(during["decide"]) / quiet, 2),
        "decide_p99_ms": _p99(during["decide"]),
        "healthz_ms": round(statistics.median(during["healthz"]), 2),
        "healthz_p99_ms": _p99(during["healthz"]),
        "healthz_max_ms": round(max(during["healthz"]), 1),
    }


def _p99(values: list[float]) -> float:
    return round(sorted(values)[min(len(values) - 1, int(len(values) * 0.99))], 1)


@contextlib.contextmanager
def _gateway(folder: Path) -> Iterator[tuple[int, str, str]]:
    """A gateway with rates lifted: its port, and the keys of two agents."""
    home = folder / "fair"
    config = write(home, CONFIG.format(durability="fsync"))
    victim, attacker = made_key(home, "agent", "victim"), made_key(home, "agent", "attacker")
    with serving(config, home) as (port, _):
        yield port, victim, attacker


def _measure(port: int, key: str, seconds: float) -> Section:
    """Milliseconds of decisions and of looks at `/healthz`, asked side by side."""
    found: Section = {"decide": [], "healthz": []}

    def ask(name: str, method: str, path: str, body: bytes | None) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            start = time.perf_counter()
            connection.request(method, path, body, {"authorization": f"Bearer {key}"})
            response = connection.getresponse()
            response.read()
            found[name].append((time.perf_counter() - start) * 1e3)
            if response.status != 200:
                raise RuntimeError(f"{path} answered {response.status}")
            time.sleep(PAUSE_S)

    threads = [
        threading.Thread(target=ask, args=("decide", "POST", "/v1/decisions", CALL)),
        threading.Thread(target=ask, args=("healthz", "GET", "/healthz", None)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _attack(port: int, data: bytes, connections: int, seconds: float) -> None:
    asyncio.run(run(("127.0.0.1", port), data, connections=connections, seconds=seconds))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="aegis-fair-") as folder:
        rows = fairness(Path(folder), quick=False, names=tuple(sys.argv[1:]))
    print(table(rows))


def table(rows: Section) -> str:
    """The rows as text, in milliseconds."""
    names = ("quiet", "during", "ratio", "p99", "healthz", "p99", "max")
    lines = [f"{'attack':34}" + "".join(f"{name:>9}" for name in names)]
    for attack, row in rows.items():
        lines.append(f"{attack:34}" + "".join(f"{value:9.2f}" for value in row.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
