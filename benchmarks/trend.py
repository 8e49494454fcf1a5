"""How the costs develop: one line a run in `history.jsonl`, the chart of `docs`, and a check against the last line.

`python -m benchmarks.trend` measures three times and fails where all three are worse by a fifth than what the history
says of the same kind of machine. What is compared is processor time of a decision over processor time of a bare signed
append (JSON, hash, signature, row, commit) in the same moment: slices of both alternate, each slice gives one ratio,
and a run is the median of its slices. A machine that is busy or slow slows both. What remains of noise has to strike
three times in the same direction; a change of the code does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson

from aegis.bootstrap import Deployment
from aegis.core.call import ToolCall
from benchmarks.deployments import embedded

ROOT: Final = Path(__file__).resolve().parent.parent
HISTORY: Final = ROOT / "benchmarks" / "history.jsonl"
CHART: Final = ROOT / "docs" / "benchmarks-trend.svg"
RUNS: Final = 3
WORSE: Final = 1.2
SLICES: Final = 30
_SLICE: Final = 25  # of each work in turn: some milliseconds
_TEXT: Final = "the meeting moved to Thursday because the room was taken on the day before. "
CALLS: Final[Mapping[str, ToolCall]] = {
    "a file that is read": ToolCall(tool="read_file", arguments={"path": "reports/2026/quarterly-summary.md"}),
    "a mail that is sent": ToolCall(tool="write_note", arguments={"to": "ann@example.com", "text": _TEXT * 6}),
    "a command": ToolCall(tool="run_command", arguments={"command": "cd /srv/app && git log --oneline | head -20"}),
}
_BASE: Final = "a bare signed append"

Work = Callable[[], object]


def works(place: Deployment, folder: Path) -> dict[str, Work]:
    """What is compared; the first is the baseline."""
    signer, numbers = place.keyring.receipt_signer("bench"), count()
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=normal")
    connection.execute("create table leaf (i integer primary key, hash blob, body blob)")
    members = {f"member{number}": f"value of the member {number}" for number in range(24)}

    def bare() -> None:
        body = orjson.dumps(members | {"index": next(numbers)}, option=orjson.OPT_SORT_KEYS)
        signed = body + signer.sign(body)
        connection.execute("insert into leaf (hash, body) values (?, ?)", (hashlib.sha256(signed).digest(), signed))

    def decide(call: ToolCall) -> Work:
        return lambda: place.gate.decide(call)

    return {_BASE: bare, **{name: decide(call) for name, call in CALLS.items()}}


def ratios(compared: Mapping[str, Work], *, slices: int = SLICES, clock: Callable[[], int]) -> dict[str, float]:
    """The median over slices of each work's time over the first one's, which were measured by turns."""
    names = list(compared)
    for work in compared.values():
        for _ in range(_SLICE):
            work()
    found: dict[str, list[float]] = {name: [] for name in names[1:]}
    for _ in range(slices):
        spent: list[int] = []
        for name in names:
            started = clock()
            for _ in range(_SLICE):
                compared[name]()
            spent.append(clock() - started)
        for name, own in zip(names[1:], spent[1:], strict=True):
            found[name].append(own / spent[0])
    return {name: round(median(each), 2) for name, each in found.items()}


def measured() -> dict[str, float]:
    """The ratios of one run, in processor time of this process."""
    with tempfile.TemporaryDirectory(prefix="aegis-trend-") as name:
        folder = Path(name)
        with embedded(folder / "home", "os") as place:
            return ratios(works(place, folder), clock=time.process_time_ns)


def machine() -> dict[str, str]:
    """The kind of machine that ratios are compared on."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"system": platform.system(), "machine": platform.machine(), "processor": _processor(), "python": python}


def _processor() -> str:
    """The model of the processor: how fast it signs and how fast it interprets differ from one to another.

    Virtual machines shorten its name to that of a family, so that its numbers stand beside the name.
    """
    file = Path("/proc/cpuinfo")
    first = file.read_text().partition("\n\n")[0].splitlines() if file.exists() else []
    said = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first)}
    told = (said.get(name, "") for name in ("model name", "cpu family", "model", "stepping"))
    return " ".join(one for one in told if one)


def worse(runs: Sequence[Mapping[str, float]], recorded: Mapping[str, float]) -> list[str]:
    """What is worse than recorded by a fifth in every run, in words; a work that was not recorded is none."""
    found: list[str] = []
    for name, before in recorded.items():
        least = min((run[name] for run in runs if name in run), default=0.0)
        if least > before * WORSE:
            found.append(f"{name}: {least:.2f} times {_BASE} where {before:.2f} is recorded")
    return found


def last_of(history: Sequence[Mapping[str, Any]], kind: Mapping[str, str]) -> Mapping[str, float]:
    """The ratios that were recorded last on this kind of machine; none where it was never measured."""
    fitting = [line for line in history if all(line["machine"].get(name) == value for name, value in kind.items())]
    return fitting[-1]["ratios"] if fitting else {}


def read_history(file: Path = HISTORY) -> list[dict[str, Any]]:
    """Every line of the history."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def append(
    results: Mapping[str, Any] | None = None, *, runs: Sequence[Mapping[str, float]], file: Path = HISTORY
) -> None:
    """Add a line: the medians of these runs, the machine and the commit, and what `results` say of their baselines."""
    names = list(runs[0])
    line: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "machine": machine(),
        "ratios": {name: round(median(run[name] for run in runs), 2) for name in names},
    }
    if results is not None:
        line["baselines"] = baselines(results)
    with file.open("a") as stream:
        stream.write(json.dumps(line) + "\n")


def baselines(results: Mapping[str, Any]) -> dict[str, float]:
    """Wall times of a run of `make bench` over those of its own baselines."""
    found: dict[str, float] = {}
    inside, http = results.get("in_process"), results.get("http")
    if inside:
        found["decision, fsync, over the raw flush"] = inside["fsync_over_raw"]
        found["decision, os, over one signature"] = inside["decide_os"]["p50"] / inside["sign"]["p50"]
    if http:
        bare = http["bare_server_sequential"]["p50_ms"]
        found["HTTP, one connection, over a bare server"] = http["sequential"]["p50_ms"] / bare
        found["HTTP, 32 connections, under a bare server"] = (
            http["bare_server_32"]["per_second"] / http["connections_32"]["per_second"]
        )
    return {name: round(value, 2) for name, value in found.items()}


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


_WIDTH: Final = 720
_HEIGHT: Final = 260
_LEFT, _TOP, _BOTTOM, _RIGHT = 50, 20, 40, 210
_COLOURS: Final = ("#2f6feb", "#1a7f37", "#9a6700", "#8250df")


def chart(history: Sequence[Mapping[str, Any]]) -> str:
    """The ratios over the lines of the history, as an SVG."""
    names = list(dict.fromkeys(name for line in history for name in line["ratios"]))
    most = max((value for line in history for value in line["ratios"].values()), default=1.0) * 1.1
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    step = wide / max(1, len(history) - 1)
    body: list[str] = []
    for mark in range(5):
        y = _TOP + high * (1 - mark / 4)
        body.append(f'<line x1="{_LEFT}" x2="{_LEFT + wide}" y1="{y:.0f}" y2="{y:.0f}"/>')
        body.append(f'<text x="{_LEFT - 8}" y="{y + 5:.0f}" text-anchor="end">{most * mark / 4:.0f}</text>')
    for place, name in enumerate(names):
        colour = _COLOURS[place % len(_COLOURS)]
        points = [
            (_LEFT + at * step, _TOP + high * (1 - line["ratios"][name] / most))
            for at, line in enumerate(history)
            if name in line["ratios"]
        ]
        drawn = " ".join(f"{x:.0f},{y:.0f}" for x, y in points)
        body.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{drawn}"/>')
        body += [f'<circle cx="{x:.0f}" cy="{y:.0f}" r="3" fill="{colour}"/>' for x, y in points]
        y = _TOP + 14 + place * 22
        body.append(f'<text x="{_LEFT + wide + 16}" y="{y}" style="fill:{colour}">{name}</text>')
    if history:
        body.append(f'<text x="{_LEFT}" y="{_HEIGHT - 12}">{history[0]["commit"]}</text>')
        end = f'<text x="{_LEFT + wide}" y="{_HEIGHT - 12}" text-anchor="end">{history[-1]["commit"]}</text>'
        body.append(end if len(history) > 1 else "")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="processor time of a decision over that of {_BASE}, by commit">\n'
        "<style>text{font:14px system-ui,sans-serif;fill:#57606a}line{stroke:#d0d7de}</style>\n"
        + "\n".join(filter(None, body))
        + "\n</svg>\n"
    )


def main() -> int:
    """Check against the history, or add to it; 1 where something got worse by a fifth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="add what is measured to the history, and draw the chart")
    given = parser.parse_args()
    recorded = {} if given.record else last_of(read_history(), machine())
    runs: list[dict[str, float]] = []
    for _ in range(RUNS):
        runs.append(measured())
        print(json.dumps(runs[-1]), flush=True)
        if recorded and not worse(runs, recorded):  # one run that is as good as the record is proof enough
            return 0
    if given.record:
        append(runs=runs)
        CHART.write_text(chart(read_history()))
        return 0
    if not recorded:
        print("no run on this kind of machine is recorded: nothing to compare with")
    found = worse(runs, recorded)
    for one in found:
        print(one, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
