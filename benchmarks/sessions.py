"""What a call of a long session costs, first and last: `python -m benchmarks.sessions` makes 10,000 calls in one.

The calls read, write files and send, and results come back, so that what a session remembers grows to its caps. Of the
first hundred calls behind a warm-up and of the last hundred it counts the functions that they call and the bytes of
documents that they write, and takes their processor time beside that of a session that begins in the same moment.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aegis.bootstrap import Deployment, open_deployment
from aegis.core.call import ToolCall, ToolResult
from aegis.store.sqlite.store import SqliteTransaction

HUNDRED: Final = 100
WARM: Final = 200
_CONFIG: Final = """version: 1
store: 'memory:'
limits: {rate: unlimited}
guards: {loops: {mode: off}, behaviour: {mode: off}}
tools:
  read_file: {risk: low, effects: [read]}
  write_file: {risk: low, effects: [write]}
  send_email: {risk: low, effects: [external_send]}
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a hundred calls cost: functions that were called, bytes of documents written, and seconds of a processor."""

    functions: int
    written: int
    seconds: float


def main() -> None:
    """Print what the first and the last hundred calls of a session cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    first, last, fresh = measured(parser.parse_args().calls)
    print(f"{'':28}{'functions':>12}{'bytes written':>16}{'seconds':>10}")
    for name, cost in (("first hundred", first), ("last hundred", last), ("a new session beside it", fresh)):
        print(f"{name:28}{cost.functions:>12,}{cost.written:>16,}{cost.seconds:>10.3f}")
    print(f"last to first: functions {last.functions / first.functions:.3f}, bytes {last.written / first.written:.3f}")
    print(f"last to a new session, processor time: {last.seconds / fresh.seconds:.3f}")


def measured(calls: int) -> tuple[Cost, Cost, Cost]:
    """The cost of the first and of the last hundred of `calls` in one session, and of a new session in that moment."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "aegis.yaml").write_text(_CONFIG)
        (home / "aegis.yaml").chmod(0o600)
        place = open_deployment(home / "aegis.yaml", home, agent="bench")
        try:
            with ThreadPoolExecutor(1) as threads:  # the main thread has its steps run by another one
                return threads.submit(_measured, place, calls).result()
        finally:
            place.close()


def _measured(place: Deployment, calls: int) -> tuple[Cost, Cost, Cost]:
    run(place, "long", 0, WARM)
    first = cost(place, "long", WARM)
    run(place, "long", WARM + HUNDRED, calls - 2 * HUNDRED)
    last = cost(place, "long", calls - HUNDRED)
    run(place, "new", 0, WARM)
    return first, last, cost(place, "new", WARM)


def run(place: Deployment, session: str, start: int, stop: int) -> None:
    """Make calls number `start` to `stop` of a session."""
    if start == 0:
        place.gate.open_session(
            session, task="Read the bills, note what they say in files and mail a summary to ada@example.com"
        )
    for number in range(start, stop):
        tool, arguments = _call(number)
        decision = place.gate.decide(ToolCall(tool=tool, arguments=arguments, session=session))
        if tool == "read_file" and decision.allowed:
            result = f"Bill {number}. Ask pay{number}@example.com, account DE{number:020}."
            place.gate.observe(ToolResult(decision_id=decision.decision_id, result=result))


def _call(number: int) -> tuple[str, dict[str, Any]]:
    if number % 4 == 0:
        return "write_file", {"path": f"notes/{number}.txt", "content": f"bill {number}"}
    if number % 4 == 1:
        return "send_email", {"to": "ada@example.com", "body": "a summary"}
    return "read_file", {"path": f"bills/{number}.txt"}


def cost(place: Deployment, session: str, start: int) -> Cost:
    """What the hundred calls from `start` on cost: a half of them counted, and a half timed without counting."""
    half = start + HUNDRED // 2
    functions = 0

    def seen(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal functions
        functions += event == "call"

    with _writes() as sizes:
        sys.setprofile(seen)
        try:
            run(place, session, start, half)
        finally:
            sys.setprofile(None)
        began = time.process_time()
        run(place, session, half, start + HUNDRED)
        return Cost(functions=2 * functions, written=sum(sizes), seconds=2 * (time.process_time() - began))


@contextmanager
def _writes() -> Iterator[list[int]]:
    """The sizes of the documents that are written to stores in memory meanwhile."""
    sizes: list[int] = []
    kind: Any = SqliteTransaction
    original = kind.put_document

    def put(transaction: Any, document: Any) -> None:
        sizes.append(len(document.body))
        original(transaction, document)

    kind.put_document = put
    try:
        yield sizes
    finally:
        kind.put_document = original


if __name__ == "__main__":
    main()
