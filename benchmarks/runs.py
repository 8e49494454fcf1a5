"""What governed runs cost: 1,000 runs at 32 concurrency against a provider that answers at once.

Run it as `python -m benchmarks.runs`. Every run has one turn with a tool call and one with the answer; the log is
verified afterwards, and every outcome is counted in it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import orjson

from aegis.bootstrap import Deployment, open_deployment
from aegis.core.principal import Principal
from aegis.runs.explain import steps_of
from aegis.runs.service import Runs, open_runs
from aegis.runs.state import RunAnswer, RunRequest

BOT = Principal(id="bench", roles=frozenset({"agent"}), agent="bench")
RUNS = 1_000
AT_ONCE = 32
SERVER = """
from mcp.server import MCPServer
server = MCPServer("office")

@server.tool()
def read_note(name: str) -> str:
    "Reads a note."
    return f"note {name}"

server.run()
"""


def main() -> None:
    """Measure and print."""
    for name, value in asyncio.run(measure()).items():
        print(f"{name:<44}{value:>12}")


async def measure(count: int = RUNS) -> dict[str, str]:
    """Every figure by its name."""
    os.environ["BENCH_PROVIDER_KEY"] = "none"
    provider = await asyncio.start_server(_serve, "127.0.0.1", 0)
    port = provider.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        place = await asyncio.to_thread(_deployment, Path(folder), port)
        try:
            async with open_runs(place) as runs:
                await runs.start(BOT, _request("warm-up"))
                began = time.perf_counter()
                answers, times = await _all(runs, count)
                seconds = time.perf_counter() - began
            found = _found(place, answers)
        finally:
            place.close()
    provider.close()
    return {
        "runs": f"{count}",
        "completed": f"{sum(answer.status == 'completed' for answer in answers)}",
        "told by the log in full": f"{found}",
        "runs a second": f"{count / seconds:.1f}",
        "median of one run, ms": f"{statistics.median(times) * 1_000:.1f}",
    }


async def _all(runs: Runs, count: int) -> tuple[list[RunAnswer], list[float]]:
    waiting = asyncio.Semaphore(AT_ONCE)
    times: list[float] = []

    async def one(number: int) -> RunAnswer:
        async with waiting:
            began = time.perf_counter()
            answer = await runs.start(BOT, _request(f"run-{number}"))
            times.append(time.perf_counter() - began)
            return answer

    return await asyncio.gather(*(one(number) for number in range(count))), times


def _found(place: Deployment, answers: list[RunAnswer]) -> int:
    """How many runs the log tells from start to end, their tool call between."""
    complete = 0
    for answer in answers:
        with place.store.reader() as reader:
            stages = Counter(step.stage for step in steps_of(reader, answer.run_id))
        complete += stages["start"] == stages["end"] == 1 and stages["turn"] == 2 and stages["decision"] >= 1
    return complete


def _request(run_id: str) -> RunRequest:
    return RunRequest(messages=({"role": "user", "content": "what does the note say"},), run_id=run_id)


def _deployment(folder: Path, port: int) -> Deployment:
    program = folder / "office.py"
    program.write_text(SERVER)
    home = folder / "home"
    home.mkdir(mode=0o700)
    file = home / "aegis.yaml"
    settings: dict[str, Any] = {
        "version": 1,
        "profile": "standard",
        "limits": {"rate": "unlimited"},
        "tools": {"read_note": {"risk": "low", "effects": ["read"]}},
        "proxies": {
            "providers": {
                "here": {
                    "dialect": "openai",
                    "url": f"http://127.0.0.1:{port}/v1",
                    "key": "${env:BENCH_PROVIDER_KEY}",
                    "private": True,
                }
            }
        },
        "runs": {
            "models": {"main": {"provider": "here", "model": "m", "price": {"input": 1, "output": 1}}},
            "servers": {"office": {"command": [sys.executable, str(program)]}},
            "routes": {"default": {"models": ["main"], "servers": ["office"]}},
        },
    }
    file.write_bytes(orjson.dumps(settings))
    file.chmod(0o600)
    return open_deployment(file, home, agent="bench")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A provider that speaks chat completions: a tool call first, then a text."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            request = orjson.loads(await reader.readexactly(length))
            message: dict[str, Any] = {"role": "assistant", "content": "it says hello"}
            if request["messages"][-1]["role"] != "tool":
                function = {"name": "read_note", "arguments": '{"name": "a"}'}
                message = {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": function}],
                }
            usage = {"prompt_tokens": 10, "completion_tokens": 5}
            body = orjson.dumps({"choices": [{"message": message}], "usage": usage})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    main()
