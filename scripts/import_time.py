"""Prints how long `import aegis` takes in a fresh interpreter: the median of five, as a fact and not as a test."""

from __future__ import annotations

import statistics
import subprocess
import sys

CODE = "from time import perf_counter as t; s = t(); import aegis; print(t() - s)"


def main() -> None:
    times = [
        float(subprocess.run([sys.executable, "-c", CODE], capture_output=True, check=True).stdout) for _ in "12345"
    ]
    print(f"fact: `import aegis` takes {statistics.median(times) * 1000:.0f} ms here (median of five)")


if __name__ == "__main__":
    main()
