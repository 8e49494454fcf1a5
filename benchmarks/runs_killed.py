"""kill -9 in the middle of 1,000 runs at 32 concurrency: every run ends, no tool runs twice, and the log verifies.

Run it as `python -m benchmarks.runs_killed`. Every tenth run asks for a mail that a person has to allow, and so is
paused; the others read a note of their own. The gateway is killed once a third of the notes were read; its successor
takes the runs up, the clients ask again under the same ids, and a person allows every mail.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from benchmarks.deployments import AEGIS, made_key, serving, write

RUNS = 1_000
AT_ONCE = 32
MAIL_EVERY = 10
ENDS = ("completed", "refused", "failed")
TOOLS = """
import sys
from pathlib import Path
from mcp.server import MCPServer

journal = Path(sys.argv[1])
server = MCPServer("office")


def note(line: str) -> None:
    with journal.open("a") as file:
        file.write(line + "\\n")


@server.tool()
def read_note(name: str) -> str:
    "Reads a note."
    note(f"read_note {name}")
    return f"note {name}"


@server.tool()
def send_email(to: str, body: str) -> str:
    "Sends mail."
    note(f"send_email {to}")
    return "sent"


server.run()
"""


def main() -> None:
    """Measure and print."""
    for name, value in measure().items():
        print(f"{name:<44}{value:>12}")


def measure(count: int = RUNS) -> dict[str, str]:
    """Every figure by its name."""
    os.environ["BENCH_PROVIDER_KEY"] = "none"
    with tempfile.TemporaryDirectory(prefix="aegis-bench-") as folder:
        return _Killed(Path(folder), count).measured()


class _Killed:
    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count
        self._home = folder / "home"
        self._journal = folder / "journal"
        self._journal.touch()
        program = folder / "office.py"
        program.write_text(TOOLS)
        command = [sys.executable, str(program), str(self._journal)]
        self._file = write(self._home, orjson.dumps(_settings(command, _provider())).decode())
        self._agent, self._person = made_key(self._home, "agent"), made_key(self._home, "approver")
        self._port = 0

    def measured(self) -> dict[str, str]:
        numbers = range(self._count)
        # (1) Killed while runs are at work, and others wait for a person.
        with serving(self._file, self._home) as (self._port, process), ThreadPoolExecutor(AT_ONCE) as clients:
            asked = [clients.submit(self._start, number) for number in numbers]
            _until(lambda: len(self._done()) >= self._count // 3)
            process.kill()
            process.wait()
            broken = sum(one.exception() is not None for one in asked)
        # (2) Its successor: the same ids again, every mail allowed, every run to its end.
        began = time.perf_counter()
        with serving(self._file, self._home) as (self._port, _), ThreadPoolExecutor(AT_ONCE) as clients:
            again = list(clients.map(self._start, numbers))
            paused = sum(run["status"] == "paused" for run in again)
            ends = Counter(run["status"] for run in clients.map(self._end, numbers))
            seconds = time.perf_counter() - began
        done = Counter(self._done())
        return {
            "runs": f"{self._count}",
            "clients whose gateway was gone": f"{broken}",
            "paused, and allowed afterwards": f"{paused}",
            **{f"ended as {status}": f"{ends[status]}" for status in ENDS},
            "calls of tools": f"{sum(done.values())}",
            "calls that ran twice": f"{sum(times > 1 for times in done.values())}",
            "told by the log from start to end": f"{self._told()}",
            "seconds until the last one ended": f"{seconds:.0f}",
            "the log verifies": self._verified(),
        }

    def _start(self, number: int) -> Any:
        body = {"id": f"run-{number}", "messages": [{"role": "user", "content": f"n{number}"}]}
        return self._ask("POST", "/v1/runs", self._agent, body)

    def _end(self, number: int) -> Any:
        def ended() -> Any:
            run = self._ask("GET", f"/v1/runs/run-{number}", self._agent)
            for held in run["approvals"]:
                self._ask("POST", f"/v1/approvals/{held['approval']}", self._person, {"decision": "approve"})
            return run if run["status"] in ENDS else None

        return _until(ended)

    def _ask(self, method: str, path: str, key: str, body: Any = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=300)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        try:
            connection.request(method, path, None if body is None else orjson.dumps(body), headers)
            return orjson.loads(connection.getresponse().read())
        finally:
            connection.close()

    def _done(self) -> list[str]:
        return self._journal.read_text().splitlines()

    def _told(self) -> int:
        """How many runs the log tells from a start to an end; a kill in the middle of one may have it told twice."""
        actions: Counter[tuple[str, str]] = Counter()
        out = self._folder / "export"
        subprocess.run([AEGIS, "log", "export", "--out", out, "--home", self._home], check=True, capture_output=True)
        for line in (out / "receipts.jsonl").open("rb"):
            receipt = orjson.loads(line)
            receipt = receipt.get("receipt", receipt)
            if receipt.get("kind") == "run":
                actions[receipt["session"], receipt["action"]] += 1
        names = [f"run-{number}" for number in range(self._count)]
        return sum(bool(actions[name, "start"] and actions[name, "end"]) for name in names)

    def _verified(self) -> str:
        out, keys = self._folder / "export", self._folder / "keys.json"
        keys.write_bytes((out / "keys.json").read_bytes())
        checked = subprocess.run([AEGIS, "log", "verify", out, "--key", keys], capture_output=True, check=False)
        return "yes" if checked.returncode == 0 else "no"


def _until(found: Callable[[], Any]) -> Any:
    while not (value := found()):
        time.sleep(0.05)
    return value


def _provider() -> int:
    """The port of a provider that answers at once, in a thread of its own."""
    ready = threading.Event()
    ports: list[int] = []

    async def serve() -> None:
        server = await asyncio.start_server(_answers, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        await server.serve_forever()

    threading.Thread(target=lambda: asyncio.run(serve()), daemon=True).start()
    ready.wait()
    return ports[0]


async def _answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Chat completions: a tool call of the run's own first, then a text."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            request = orjson.loads(await reader.readexactly(length))
            message: dict[str, Any] = {"role": "assistant", "content": "done"}
            if request["messages"][-1]["role"] != "tool":
                named = request["messages"][0]["content"]
                mails = int(named[1:]) % MAIL_EVERY == 0
                arguments = {"to": f"{named}@example.com", "body": "hello"} if mails else {"name": named}
                function = {
                    "name": "send_email" if mails else "read_note",
                    "arguments": orjson.dumps(arguments).decode(),
                }
                message = {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "c1", "type": "function", "function": function}],
                }
            body = orjson.dumps({"choices": [{"message": message}], "usage": {}})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _settings(command: list[str], port: int) -> dict[str, Any]:
    url, key = f"http://127.0.0.1:{port}/v1", "${env:BENCH_PROVIDER_KEY}"
    return {
        "version": 1,
        "profile": "standard",
        "limits": {"rate": "unlimited"},
        "tools": {
            "read_note": {"risk": "low", "effects": ["read"]},
            "send_email": {"risk": "high", "irreversible": True, "effects": ["external_send"]},
        },
        "proxies": {"providers": {"here": {"dialect": "openai", "url": url, "key": key, "private": True}}},
        "runs": {
            "models": {"main": {"provider": "here", "model": "m"}},
            "servers": {"office": {"command": command}},
            "routes": {"default": {"models": ["main"], "servers": ["office"]}},
        },
    }


if __name__ == "__main__":
    main()
