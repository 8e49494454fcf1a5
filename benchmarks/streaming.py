"""What judging a streamed result costs: the processor's time, and the wall time of whoever reads the stream.

The text is prose with some figures in it, of which no two chunks are alike.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterable, Iterator
from typing import Any

from aegis.core.call import ToolCall
from aegis.core.mission import Postcondition
from aegis.gate import Gate
from aegis.policy.guards.stream import Prefilter, StreamJudge

CHUNK = 65_536
CHUNKS = 64
PASSES = 12  # over the chunks, where the processor's time is taken
PACE = 100e6  # bytes a second
SECONDS = 1.0
ROUNDS = 5
_SENTENCES = (
    "the quarterly report of our northern region says that revenue grew while costs of material and freight stayed"
    " where they were; orders for the next season came earlier than usual, and most customers asked for delivery"
    " before summer. A table below lists items by warehouse, with amounts, dates and the name of who signed."
)
_WORDS = _SENTENCES.split()


def prose(seed: int) -> bytes:
    """One chunk of clean text: words, and a number among thirty of them."""
    rng = random.Random(seed)
    words = [str(rng.randrange(1, 10_000)) if rng.random() < 1 / 30 else rng.choice(_WORDS) for _ in range(16_000)]
    return " ".join(words).encode()[:CHUNK]


def measure(gate: Gate, open_session: Any) -> dict[str, str]:
    """Every figure by its name; `open_session(name, **claims)` opens a session under a mission with these claims."""
    chunks = [prose(seed) for seed in range(CHUNKS)]
    scanner = gate.parts.policy.current.scanner
    found: dict[str, str] = {}
    for name, checks in (("no_pii", ("no_pii",)), ("no_pii and no_secrets", ("no_pii", "no_secrets"))):
        conditions: list[Any] = [{"id": one.replace("_", "-"), "check": one} for one in checks]
        judge = StreamJudge([Postcondition(**one) for one in conditions], lambda wanted: Prefilter(scanner, wanted))
        judge.feed(chunks[0], 0.0)
        started = time.process_time()
        for number in range(PASSES):
            for chunk in chunks:
                judge.feed(chunk, number / 1_000)
        rate = PASSES * CHUNKS * CHUNK / (time.process_time() - started)
        found[f"stream judged for {name}"] = f"{rate / 1e6:.0f} MB/s"
        found[f"processor at 100 MB/s for {name}"] = f"{100 * PACE / rate:.1f} %"
        session = name.replace(" ", "-")
        open_session(gate, session, postconditions=conditions)
        ratios = []
        for _ in range(ROUNDS):
            plain = _read(paced(chunks))
            decision = gate.decide(ToolCall(tool="read_file", arguments={"path": "/ws/a"}, session=session))
            judged = _read(gate.evaluate_streaming(decision.decision_id, paced(chunks)))
            ratios.append(judged / plain)
        found[f"wall time at 100 MB/s for {name}"] = f"{100 * (statistics.median(ratios) - 1):+.1f} %"
    return found


def paced(chunks: list[bytes]) -> Iterator[bytes]:
    """The chunks over and over for `SECONDS`, each when its time has come: a source of `PACE` bytes a second."""
    started = time.perf_counter()
    for number in range(int(SECONDS * PACE) // CHUNK):
        wait = started + number * CHUNK / PACE - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        yield chunks[number % len(chunks)]


def _read(source: Iterable[bytes]) -> float:
    """Seconds to read everything, looking at each piece once."""
    started = time.perf_counter()
    total = sum(len(piece) for piece in source)
    spent = time.perf_counter() - started
    if not total:
        raise RuntimeError("the stream was empty")
    return spent
