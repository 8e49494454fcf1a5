"""Run every test: those of Python, of the frameworks in their environments, and of the SDKs in other languages.

    python scripts/run_tests.py [--workers N]

They run beside each other, for each of them waits a good part of its time. What the tests of Python say is printed as
they say it, the output of each other part whole once it ends. At the end every part has a line, and what failed is
named once more.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What a part says of a test that failed: pytest, `run_frameworks.py`, Node, Go.
_FAILED = re.compile(
    r"^(?:FAILED|ERROR) .*|^frameworks: (?:FAILED|did not end).*|^✖ .*|^\s*--- FAIL: .*|^FAIL\t.*", re.MULTILINE
)
MOST_NAMED = 40  # tests of one part that failed


@dataclass(frozen=True, kw_only=True)
class Part:
    """Tests that one command runs."""

    name: str
    command: Sequence[str]
    live: bool = False  # its output is printed as it comes


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What became of a part."""

    name: str
    status: int
    seconds: float
    output: str


def lanes(workers: int) -> tuple[tuple[Part, ...], ...]:
    """Parts that run beside each other; those of one lane one after another."""
    make = ("make", "--no-print-directory")
    cores = os.cpu_count() or 1
    frameworks = (sys.executable, "scripts/run_frameworks.py", "--beside", str(cores))
    python = (sys.executable, "-m", "pytest", "--beside", str(workers))
    return (
        (Part(name="python", command=python, live=True),),
        (Part(name="frameworks", command=frameworks),),
        (Part(name="go", command=(*make, "sdk-test-go")), Part(name="javascript", command=(*make, "sdk-test-js"))),
    )


class Runner:
    """Runs parts, and prints what they say without mixing it."""

    def __init__(self) -> None:
        self._print = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = threading.Event()

    def lane(self, parts: Sequence[Part]) -> list[Ran]:
        """Run parts one after another, whatever becomes of each."""
        return [self._run(part) for part in parts if not self._stopped.is_set()]

    def stop(self) -> None:
        """End what still runs, with all that it started, and begin nothing more."""
        self._stopped.set()
        for process in list(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)

    def _run(self, part: Part) -> Ran:
        began = time.monotonic()
        process = subprocess.Popen(
            part.command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        self._running.add(process)
        assert process.stdout is not None
        pieces: list[bytes] = []
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            pieces.append(piece)
            if part.live:
                self._say(piece)
        status = process.wait()
        self._running.discard(process)
        ran = Ran(
            name=part.name,
            status=status,
            seconds=time.monotonic() - began,
            output=b"".join(pieces).decode(errors="replace"),
        )
        if not part.live:
            self._say(f"\n==> {told(ran)}\n{ran.output}".encode())
        return ran

    def _say(self, text: bytes) -> None:
        with self._print:
            sys.stdout.buffer.write(text)
            sys.stdout.buffer.flush()


def told(ran: Ran) -> str:
    """One line about a part."""
    became = "passed" if ran.status == 0 else f"FAILED with status {ran.status}"
    return f"tests: {ran.name} {became} in {ran.seconds:.0f} s"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1), help="processes of the Python tests")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # whoever ends this ends what it started
    runner, chosen = Runner(), lanes(given.workers)
    with ThreadPoolExecutor(len(chosen)) as pool:
        running = [pool.submit(runner.lane, parts) for parts in chosen]
        try:
            ran = [one for lane in running for one in lane.result()]
        except BaseException:
            runner.stop()
            raise
    print()
    for one in ran:
        print(told(one))
        if one.status:
            for line in _FAILED.findall(one.output)[:MOST_NAMED]:
                print(f"  {line.strip()}")
    return 1 if any(one.status for one in ran) else 0


if __name__ == "__main__":
    sys.exit(main())
