"""`python -m benchmarks.flow`: what the guard of data flow costs a decision and an observation, against it off.

The same calls go through two gates of one process in turn, in sessions that read a bill, a mailbox and a list before;
CPU time of the process, so that a busy machine counts less. Each pair gives one difference; their median is printed,
the interquartile range beside it, and the 99th percentile of the guard's own work.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from aegis.bench.run import opened_gate
from aegis.core.call import ToolCall, ToolResult
from aegis.policy.dataflow.declare import NOTHING
from aegis.policy.dataflow.judge import judge_flow
from aegis.policy.dataflow.licence import FlowCall
from aegis.policy.dataflow.reading import ReadDocument, SessionView, read_result
from aegis.policy.dataflow.words import read_words
from aegis.sdk.runtime import Gate

PROMPT: Final = (
    "Please read the bill of March 2031 and the new messages of Tomas Eriksen, answer him at tomas@eriksen.example "
    "that the results of his cat are fine, and file the report K-455 in the folder of the clinic. Book nothing today."
)
RECORDS: Final = [
    {
        "id": f"a-{number}",
        "name": f"Patient {number}",
        "mail": f"owner{number}@example.com",
        "remark": "Thank you. " * 8,
    }
    for number in range(901, 941)
]
SMALL: Final = [
    RECORDS[:4],
    {"account": "DE02100500000054540402", "note": "Please pay by Friday."},
    "Plain text of a page.",
]
ACTING: Final = ToolCall(
    tool="send_letter",
    arguments={
        "to": "tomas@eriksen.example", "subject": "Results of your cat",
        "text": "Hello Tomas, the results are fine. The report K-455 is in the folder of the clinic. " * 3,
    },
)  # fmt: skip
PAIRS: Final = 1_500
BIG: Final = json.dumps((RECORDS * 2)[:59])  # 10 KB


def main() -> None:
    """Print the costs as JSON."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        gates = {mode: stack.enter_context(opened_gate(_config(folder, mode))) for mode in ("off", "known")}
        for mode, gate in gates.items():
            gate.open_session(mode, task=PROMPT)
            for number, result in enumerate(SMALL):
                _observed(gate, mode, f"read-{number}", result)
        decided = {mode: _deciding(gate, mode) for mode, gate in gates.items()}
        observed = {mode: _observing(gate, mode) for mode, gate in gates.items()}
        told = {
            "an acting call, beyond off (us)": _paired(decided["off"], decided["known"]),
            "a result of 10 KB, beyond off (us)": _paired(observed["off"], observed["known"], pairs=PAIRS // 5),
            "the guard alone (us)": _alone(),
        }
    print(json.dumps(told, indent=2))


def _config(folder: Path, mode: str) -> Path:
    file = folder / f"{mode}.yaml"
    # Drift asks for a session's memory as well: off means that nothing of a session is kept.
    guards = {"dataflow": {"mode": mode}, **({"drift": {"mode": "off"}} if mode == "off" else {})}
    file.write_text(yaml.safe_dump({"version": 1, "guards": guards}), encoding="utf-8")
    return file


def _observed(gate: Gate, session: str, call_id: str, result: Any) -> None:
    asked = ToolCall(tool="read_record", arguments={"id": call_id}, session=session, call_id=call_id)
    gate.observe(ToolResult(decision_id=gate.decide(asked).decision_id, result=result))


def _deciding(gate: Gate, session: str) -> Callable[[int], int]:
    def once(number: int) -> int:
        call = replace(ACTING, session=session, call_id=f"act-{number}")
        start = time.process_time_ns()
        gate.decide(call)
        return time.process_time_ns() - start

    return once


def _observing(gate: Gate, session: str) -> Callable[[int], int]:
    def once(number: int) -> int:
        asked = ToolCall(tool="read_record", arguments={"id": "x"}, session=f"{session}-{number}", call_id="big")
        gate.open_session(f"{session}-{number}", task=PROMPT)
        decision = gate.decide(asked)
        start = time.process_time_ns()
        gate.observe(ToolResult(decision_id=decision.decision_id, result=BIG))
        return time.process_time_ns() - start

    return once


def _paired(before: Callable[[int], int], after: Callable[[int], int], *, pairs: int = PAIRS) -> dict[str, float]:
    for number in range(50):
        before(-1 - number)
        after(-1 - number)
    off: list[int] = []
    spent: list[int] = []
    gc.disable()
    for number in range(pairs):
        works = ((before, off), (after, spent))
        for work, bucket in works if number % 2 else reversed(works):
            bucket.append(work(number))
    gc.enable()
    differences = sorted((new - old) / 1_000 for old, new in zip(off, spent, strict=True))
    quarter = len(differences) // 4
    return {
        "median": round(statistics.median(differences), 1),
        "lower quartile": round(differences[quarter], 1),
        "upper quartile": round(differences[-quarter], 1),
        "off": round(statistics.median(off) / 1_000, 1),
        "p99 beyond off's": round((_p99(spent) - _p99(off)) / 1_000, 1),
        "ratio": round(statistics.median(spent) / statistics.median(off), 3),
    }


def _p99(durations: list[int]) -> float:
    return sorted(durations)[int(len(durations) * 0.99)]


def _alone() -> dict[str, float]:
    """The steps over one call, and the reading of one result, without a gate."""
    key = b"k" * 16
    view = SessionView(key=key, words=read_words([PROMPT]))
    for number, result in enumerate(SMALL):
        view.add(
            ReadDocument(f"r{number}", "read_record", "mixed", "internal", True), read_result(result, key, NOTHING)
        )
    view.untrusted = True
    works: dict[str, Callable[[], object]] = {
        "judged": lambda: judge_flow(
            FlowCall(tool=ACTING.tool, arguments=ACTING.arguments, flow=NOTHING), view, "grant"
        ),
        "read": lambda: read_result(BIG, key, NOTHING),
    }
    told: dict[str, float] = {}
    for name, work in works.items():
        spent: list[int] = []
        for _ in range(PAIRS):
            start = time.process_time_ns()
            work()
            spent.append(time.process_time_ns() - start)
        told[name] = round(statistics.median(spent) / 1_000, 1)
        told[f"{name} p99"] = round(_p99(spent) / 1_000, 1)
    return told


if __name__ == "__main__":
    main()
