"""The fuzzer of `make fuzz`: atheris looks for a call that crashes, takes a minute, or needs two gigabytes.

Words of the command line are options of libFuzzer; a file of an earlier finding is run again alone.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["aegis.detect", "aegis.policy.guards", "aegis.detect.rules"]):
    from fuzz.content_target import run, seeds

LIMITS = ("-timeout=60", "-rss_limit_mb=2048", "-max_len=16384", "-print_final_stats=1")


def main() -> None:
    """Hand the target to atheris, with the seeds as its first inputs."""
    with tempfile.TemporaryDirectory(prefix="aegis-fuzz-") as folder:
        for number, seed in enumerate(seeds()):
            (Path(folder) / str(number)).write_bytes(seed)
        again = [word for word in sys.argv[1:] if not word.startswith("-")]
        atheris.Setup([sys.argv[0], *LIMITS, *sys.argv[1:], *([] if again else [folder])], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
