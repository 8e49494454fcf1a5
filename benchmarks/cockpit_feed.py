"""The live feed in a browser: events as fast as asked for, and what memory does meanwhile, on both sides."""

from __future__ import annotations

import http.client
import json
import threading
import time
from contextlib import closing
from typing import Any, Final

from benchmarks.deployments import resident_mib

PER_SECOND: Final = 500
BATCH: Final = 50
WARM_S: Final = 5.0  # what a page and a gateway take once is no growth
SECONDS: Final = 60.0
QUICK_S: Final = 6.0
LAST: Final = "the_last_call"


def live_feed(page: Any, host: str, port: int, key: str, pid: int, quick: bool) -> dict[str, float]:
    """Figures of a page of Chromium that shows the live feed while calls are decided.

    `page` is signed in. Memory is taken after a collection of garbage; `behind_ms` is how long after the last call
    was decided the page shows it.
    """
    page.goto("/")
    page.locator("#live-state", has_text="live").wait_for()
    session = page.context.new_cdp_session(page)
    sent = [_send(host, port, key, WARM_S)]
    before = _memory(session, pid)
    sent.append(_send(host, port, key, QUICK_S if quick else SECONDS))
    decide(host, port, key, [{"tool": LAST, "arguments": {}}])
    ended = time.perf_counter()
    page.locator("#feed tr", has_text=LAST).wait_for(timeout=120_000)
    behind = time.perf_counter() - ended
    after = _memory(session, pid)
    return {
        "per_second": round(sent[-1]),
        "behind_ms": round(behind * 1e3, 1),
        "rows": page.locator("#feed tr").count(),
        **{f"{name}_before": value for name, value in before.items()},
        **{f"{name}_after": value for name, value in after.items()},
    }


def _send(host: str, port: int, key: str, seconds: float) -> float:
    """Have calls decided at the rate that is measured, from a thread of their own; how many a second it became."""
    count = 0

    def work() -> None:
        nonlocal count
        start = time.perf_counter()
        while (now := time.perf_counter() - start) < seconds:
            if count > now * PER_SECOND:
                time.sleep(0.005)
                continue
            calls = [
                {"tool": "read_file", "arguments": {"path": f"notes/{count + at}.txt"}, "session": f"s-{at}"}
                for at in range(BATCH)
            ]
            decide(host, port, key, calls)
            count += BATCH

    started = time.perf_counter()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return count / (time.perf_counter() - started)


def decide(host: str, port: int, key: str, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The decisions on a batch of calls."""
    with closing(http.client.HTTPConnection(host, port, timeout=120)) as connection:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        connection.request("POST", "/v1/decisions:batch", json.dumps({"calls": calls}), headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"a batch was answered with {answer.status}")
        found: list[dict[str, Any]] = body["decisions"]
        return found


def _memory(session: Any, pid: int) -> dict[str, float]:
    """The page's heap in MiB and its nodes, and the gateway's resident memory in MiB."""
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    return {
        "heap_mib": round(found["JSHeapUsedSize"] / 2**20, 2),
        "nodes": found["Nodes"],
        "gateway_mib": resident_mib(pid),
    }
