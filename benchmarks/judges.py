"""What judges and previews cost: the gate's own part of a judged call, a hundred at once, a look at a command.

Run it as `python -m benchmarks.judges`; figures are of one run on this machine, beside their baselines. The
judge is a scripted provider of models in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aegis.approvals.previews.dryrun import DryRuns
from aegis.approvals.previews.look import look_at
from aegis.bootstrap import Deployment, open_deployment
from aegis.core.approval import Looked, PreviewRules
from aegis.core.call import ToolCall
from aegis.outbound.client import Egress, EgressPolicy, Request
from aegis.sandbox.view import read_folder

CALLS = 200
AT_ONCE = 100
SLOW_S = 2.0
FILES = 1_000
_PROVIDER = """
import asyncio, json, sys
RESULT = {"score": 1.0, "confidence": 1.0, "reasoning": "fine", "signals": [], "metadata": {}}
MESSAGE = {"role": "assistant", "content": json.dumps(RESULT)}
BODY = json.dumps({"choices": [{"message": MESSAGE}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()
HEAD = b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(BODY)
async def serve(reader, writer):
    try:
        while head := await reader.readuntil(b"\\r\\n\\r\\n"):
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            await reader.readexactly(length)
            await asyncio.sleep(float(sys.argv[1]))
            writer.write(HEAD + BODY)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def provider(seconds: float) -> Iterator[str]:
    """A provider that answers after so many seconds; its base URL."""
    process = subprocess.Popen([sys.executable, "-c", _PROVIDER, str(seconds)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.kill()
        process.wait()


def opened(folder: Path, url: str = "") -> Deployment:
    """A deployment, judged where there is a provider."""
    folder.mkdir(mode=0o700)
    judges = f"judges: [{{name: j, model: {{api: openai, url: '{url}/v1', name: m, private: true}}}}]" if url else ""
    file = folder / "aegis.yaml"
    file.write_text(f"version: 1\nlimits: {{rate: unlimited}}\n{judges}\n")
    file.chmod(0o600)
    return open_deployment(file, folder)


def median_ms(work: list[float]) -> float:
    """The median of some seconds, in milliseconds."""
    return statistics.median(work) * 1_000


async def bare(url: str) -> list[float]:
    """The provider alone: one request at a time by the same client."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 2_000}]}).encode()
    request = Request(method="POST", url=f"{url}/v1/chat/completions", body=body)
    taken = []
    async with Egress(EgressPolicy(private=frozenset({url.removeprefix("http://")}))) as egress:
        for _ in range(CALLS):
            began = time.perf_counter()
            await egress.send(request)
            taken.append(time.perf_counter() - began)
    return taken


def timed(running: Deployment) -> list[float]:
    """One decision at a time."""
    taken = []
    for number in range(CALLS):
        began = time.perf_counter()
        running.gate.decide(ToolCall(tool="note", arguments={"n": number}))
        taken.append(time.perf_counter() - began)
    return taken


def judged(folder: Path) -> dict[str, float]:
    """The gate's own part of a judged call: what it takes beyond the provider."""
    plain, found = opened(folder / "plain"), {}
    with provider(0) as url:
        running = opened(folder / "judged", url)
        timed(running)
        alone, whole, without = median_ms(asyncio.run(bare(url))), median_ms(timed(running)), median_ms(timed(plain))
        running.close()
    plain.close()
    found["plain decision, ms"] = without
    found["the provider alone, ms"] = alone
    found["judged decision, ms"] = whole
    found["the gate's own part of it, ms"] = whole - alone
    return found


def at_once(folder: Path) -> dict[str, float]:
    """A hundred judged calls at the same time, against a judge that takes two seconds."""
    with provider(SLOW_S) as url:
        running = opened(folder / "slow", url)

        async def many() -> None:
            calls = [ToolCall(tool="note", arguments={"n": number}) for number in range(AT_ONCE)]
            decisions = await asyncio.gather(*(running.gate.adecide(call) for call in calls))
            assert all(decision.allowed for decision in decisions)

        began = time.perf_counter()
        asyncio.run(many())
        seconds = time.perf_counter() - began
        running.close()
    return {f"{AT_ONCE} judged calls at once, judge of {SLOW_S:g} s, s": seconds}


def preview(folder: Path) -> dict[str, float]:
    """A look at `rm -rf build && touch ok` in a workspace of a thousand files."""
    workspace = folder / "workspace"
    (workspace / "build").mkdir(parents=True)
    for number in range(FILES):
        place = workspace / ("build" if number % 2 else ".") / f"f{number}.txt"
        place.write_text(f"file {number}\n" * 20)
    rules = PreviewRules(workspace=str(workspace))
    arguments = {"command": "rm -rf build && touch ok"}
    look = Looked(tool="run_shell", server=None, arguments=arguments, mounts=(), dryrun=False, rules=rules)
    before = read_folder(str(workspace)).digest
    taken = []
    for _ in range(11):
        began = time.perf_counter()
        seen = look_at(look, DryRuns())
        taken.append(time.perf_counter() - began)
        assert seen.state == "done", seen.why
    assert read_folder(str(workspace)).digest == before
    return {
        f"preview of a command, {FILES} files, first, ms": taken[0] * 1_000,
        "the same, median, ms": median_ms(taken),
    }


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        place = Path(folder)
        for name, value in {**judged(place), **at_once(place), **preview(place)}.items():
            print(f"{name:<60}{value:>10.2f}")


if __name__ == "__main__":
    main()
