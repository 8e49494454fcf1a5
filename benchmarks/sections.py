"""What is measured, one function a section; each gives plain numbers and the baseline beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from aegis.core.call import ToolCall
from benchmarks.adapters import adapters
from benchmarks.cockpit import cockpit
from benchmarks.deployments import embedded, free_port, gateway, resident_mib
from benchmarks.fairness import fairness
from benchmarks.load import Load, request, run
from benchmarks.proxies import proxies
from benchmarks.stats import interleave, measure

CALL: dict[str, Any] = {
    "tool": "read_file",
    "arguments": {
        "path": "reports/2026/quarterly-summary.md",
        "encoding": "utf-8",
        "reason": "the customer asked what changed since the last quarter, so look it up first",
    },
}

Section = dict[str, Any]


def disk(folder: Path) -> dict[str, Callable[[], object]]:
    """The raw disk: 1 KiB written and flushed, at the end of a file and in place, and one row of a bare SQLite."""
    descriptor = os.open(folder / "raw", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    block = os.urandom(1_024)
    filled = os.open(folder / "filled", os.O_CREAT | os.O_RDWR, 0o600)
    os.write(filled, bytes(1_048_576))
    os.fsync(filled)

    def raw() -> None:
        os.write(descriptor, block)
        os.fdatasync(descriptor)

    def in_place() -> None:
        os.pwrite(filled, block, 0)
        os.fdatasync(filled)

    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("create table t (i integer primary key, b blob)")

    def row() -> None:
        connection.execute("insert into t (b) values (?)", (block,))

    return {"raw fdatasync": raw, "raw in place": in_place, "bare sqlite commit": row}


def in_process(folder: Path, quick: bool) -> Section:
    """One decision in this process, signed and committed, beside the raw disk of the same moment."""
    call = ToolCall(**CALL)
    with embedded(folder / "fsync", "fsync") as durable, embedded(folder / "os", "os") as fast:
        works = disk(folder)
        works["decide fsync"] = lambda: durable.gate.decide(call)
        works["decide os"] = lambda: fast.gate.decide(call)
        signer, receipt = fast.keyring.receipt_signer("bench"), os.urandom(1_200)
        works["sign"] = lambda: signer.sign(receipt)
        times = interleave(works, rounds=10 if quick else 40, runs=50)
    beyond = times["decide fsync"]["p50"] - times["raw fdatasync"]["p50"]
    return {
        **{name.replace(" ", "_"): value for name, value in times.items()},
        "fsync_beyond_raw_us": round(beyond, 1),
        "fsync_over_raw": round(times["decide fsync"]["p50"] / times["raw fdatasync"]["p50"], 2),
    }


def argument_size(folder: Path, quick: bool) -> Section:
    """Cost against the size of the arguments, 200 bytes to 1 MiB of ordinary prose."""
    sentence = "the meeting moved to Thursday because the room was taken on the day before. "
    result: Section = {}
    with embedded(folder / "size", "os") as place:
        for size in (200, 1_000, 5_000, 20_000, 100_000, 500_000, 1_000_000):
            text = (sentence * (size // len(sentence) + 1))[:size]
            call = ToolCall(tool="write_note", arguments={"text": text})
            runs = max(5, min(400, 4_000_000 // size)) // (4 if quick else 1)
            result[str(size)] = measure(partial(place.gate.decide, call), runs=runs, warmup=3)
    small, large = result["100000"]["p50"], result["1000000"]["p50"]
    result["ratio_1MB_over_100kB"] = round(large / small, 2)
    return result


def log_length(folder: Path, quick: bool) -> Section:
    """Cost of one decision at growing lengths of the log, and what verification makes of it."""
    from aegis.core.receipt import Draft, agent_signer
    from aegis.gate.events import new_id
    from aegis.log.writer import Unit

    steps = (1_000, 10_000, 50_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    call = ToolCall(**CALL)
    result: Section = {}
    with embedded(folder / "length", "os") as place:
        sample = place.gate.decide(call)
        assert sample.receipt is not None
        with place.store.reader() as reader:
            entry = reader.entry(sample.receipt.index)
        assert entry is not None
        members = json.loads(entry.body)
        for name in ("index", "log", "prev", "sig", "time", "v"):
            members.pop(name)
        filled, started = sample.receipt.index + 1, time.perf_counter()
        appended = 0
        for length in steps:
            while filled < length:
                group = min(64, length - filled)
                place.gate.parts.ledger.commit(
                    [
                        Unit(drafts=(Draft(members={**members, "receipt_id": new_id()}, signer=agent_signer("bench")),))
                        for _ in range(group)
                    ]
                )
                filled += group
                appended += group
                if sys.stderr.isatty() and filled % 6_400 < 64:
                    print(f"\r  log of {filled:,} receipts", end="", file=sys.stderr)
            result[str(length)] = measure(lambda: place.gate.decide(call), runs=300)
            filled += 350
        result["append_per_second_in_groups"] = round(appended / (time.perf_counter() - started))
        size = place.gate.decide(call).receipt
    assert size is not None
    out, keys = folder / "export", folder / "keys.json"
    home = ("--home", str(folder / "length"))
    result["export_per_second"] = round(size.index / timed("log", "export", "--out", str(out), *home))
    shutil.copy(out / "keys.json", keys)
    result["verify_per_second"] = round(size.index / timed("log", "verify", str(out), "--key", str(keys)))
    result["verified"] = size.index + 1
    first, last = result[str(steps[0])]["p50"], result[str(steps[-1])]["p50"]
    result["last_over_first"] = round(last / first, 2)
    return result


def timed(*words: str) -> float:
    """Run one `aegis` command; the seconds it took, its start included."""
    start = time.perf_counter()
    subprocess.run([str(Path(sys.executable).with_name("aegis")), *words], check=True, capture_output=True)
    return time.perf_counter() - start


def http(folder: Path, quick: bool) -> Section:
    """The gateway over TCP on loopback: one connection, 32 connections, and a bare server beside it."""
    body = json.dumps(CALL).encode()
    seconds = 2.0 if quick else 6.0
    with gateway(folder / "http") as (host, port, key, pid):
        data = request(key, body)
        load((host, port), data, connections=4, seconds=1.0)
        before = resident_mib(pid)
        alone = load((host, port), data, connections=1, seconds=seconds)
        many = [load((host, port), data, connections=32, seconds=seconds) for _ in range(3)]
        wrk = with_wrk(host, port, key, body)
        after = resident_mib(pid)
        with BareServer() as bare_port:
            bare_alone = load((host, bare_port), data, connections=1, seconds=seconds / 2)
            bare_many = load((host, bare_port), data, connections=32, seconds=seconds / 2)
    middle = sorted(many, key=lambda one: one.per_second)[len(many) // 2]
    return {
        "sequential": alone.to_json(),
        "connections_32": middle.to_json(),
        "wrk_32": wrk,
        "bare_server_sequential": bare_alone.to_json(),
        "bare_server_32": bare_many.to_json(),
        "share_of_bare_server": round(middle.per_second / bare_many.per_second, 3),
        "gateway_resident_mib": {"before": before, "after": after},
    }


def load(address: tuple[str, int], data: bytes, *, connections: int, seconds: float) -> Load:
    """One run of the load generator on its own event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(address, data, connections=connections, seconds=seconds))


def with_wrk(host: str, port: int, key: str, body: bytes) -> Section | None:
    """The same load from `wrk`, where this machine has it."""
    wrk = shutil.which("wrk")
    if wrk is None:
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(
            f'wrk.method = "POST"\nwrk.body = [==[{body.decode()}]==]\n'
            f'wrk.headers["Authorization"] = "Bearer {key}"\nwrk.headers["Content-Type"] = "application/json"\n'
        )
        script.flush()
        output = subprocess.run(
            [wrk, "-t1", "-c32", "-d5s", "--latency", "-s", script.name, f"http://{host}:{port}/v1/decisions"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    rate = next(line.split(":")[1].strip() for line in output.splitlines() if line.startswith("Requests/sec"))
    median = next(line.split()[1] for line in output.splitlines() if line.strip().startswith("50%"))
    return {"per_second": round(float(rate)), "p50": median, "errors": "Non-2xx" in output}


class BareServer:
    """uvicorn with an application that reads the body and answers a constant: what the server alone costs."""

    def __enter__(self) -> int:
        port = free_port()
        command = [sys.executable, "-m", "uvicorn", "benchmarks.bare:app", "--port", str(port), "--log-level", "error"]
        self._process = subprocess.Popen(command)
        deadline = time.perf_counter() + 20
        while time.perf_counter() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return port
            time.sleep(0.02)
        raise RuntimeError("the bare server did not start")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)


def start_up(folder: Path, quick: bool) -> Section:
    """Import, opening an embedded gate, and a gateway from nothing to ready; resident memory."""
    script = "import time; s = time.perf_counter(); import aegis; print((time.perf_counter() - s) * 1e3)"
    rounds = 5 if quick else 15
    imports = [float(subprocess.check_output([sys.executable, "-c", script])) for _ in range(rounds)]
    opening: list[float] = []
    for number in range(3):
        start = time.perf_counter()
        with embedded(folder / f"open{number % 2}", "fsync"):
            opening.append((time.perf_counter() - start) * 1e3)
    start = time.perf_counter()
    with gateway(folder / "start") as (_, _, _, pid):
        ready = (time.perf_counter() - start) * 1e3
        resident = resident_mib(pid)
    return {
        "import_ms": round(statistics.median(imports), 1),
        "open_gate_ms": [round(value, 1) for value in opening],
        "key_and_gateway_ready_ms": round(ready, 1),
        "gateway_resident_mib": resident,
    }


SECTIONS: dict[str, Callable[[Path, bool], Section]] = {
    "in_process": in_process,
    "http": http,
    "argument_size": argument_size,
    "log_length": log_length,
    "start_up": start_up,
    "cockpit": cockpit,
    "fairness": fairness,
    "proxies": proxies,
    "adapters": adapters,
}
