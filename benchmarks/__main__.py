"""`make bench`: run the sections, write `benchmarks/results`, the table and the chart in `docs`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from aegis import __version__
from benchmarks import trend
from benchmarks.processes import processes
from benchmarks.report import chart, table
from benchmarks.sections import SECTIONS as MEASURED
from benchmarks.sections import Section

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = {**MEASURED, "processes": processes}
RESULTS = ROOT / "benchmarks" / "results"


def main() -> None:
    """Run what was asked for, one section after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"any of {', '.join(SECTIONS)}; none is all")
    parser.add_argument("--quick", action="store_true", help="shorter runs, a log of 50,000 receipts; not for quoting")
    given = parser.parse_args()
    unknown = [name for name in given.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"there is no section `{unknown[0]}`")
    latest = RESULTS / "latest.json"
    results: dict[str, Section] = json.loads(latest.read_text()) if given.sections and latest.exists() else {}
    results["machine"] = machine()
    for name in given.sections or SECTIONS:
        print(f"{name} ...", file=sys.stderr, flush=True)
        started = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
            results[name] = SECTIONS[name](Path(folder), given.quick)
        print(f"{name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    RESULTS.mkdir(exist_ok=True)
    if not given.quick:
        latest.write_text(json.dumps(results, indent=1) + "\n")
        (ROOT / "docs" / "benchmarks.md").write_text(table(results))
        (ROOT / "docs" / "benchmarks.svg").write_text(chart(results))
        trend.append(results, runs=[trend.measured() for _ in range(trend.RUNS)])
        trend.CHART.write_text(trend.chart(trend.read_history()))
    print(table(results))


def machine() -> Section:
    """What the figures were measured on."""
    return {
        "aegis": __version__,
        "cores": os.cpu_count() or 0,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "system": platform.system(),
    }


if __name__ == "__main__":
    main()
